/* SPDX-License-Identifier: Apache-2.0 */
/* What the trainer asks of an optimizer. plain.c and offload.c are two of them. */
#ifndef FLAT_OPTIMIZER_H
#define FLAT_OPTIMIZER_H

#include "trainer.h"

typedef struct optimizer optimizer;

/* Null if it could not be made; the optimizer says why. */
optimizer *optimizer_make(flat_trainer *trainer, const adamw *settings);
void optimizer_free(optimizer *self);
/* The trainer is about to read the weights. 1 on success. */
int optimizer_before_forward(optimizer *self);
/* Applies the trainer's gradients times `clip`. 1 on success. */
int optimizer_step(optimizer *self, double clip);

#endif
