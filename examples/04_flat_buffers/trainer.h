/* SPDX-License-Identifier: Apache-2.0 */
/* A trainer as it is before anything is offloaded: all weights in one flat buffer, all gradients in
 * another, and an optimizer that walks over both. The model is a perceptron with two hidden layers
 * that tells which of three spirals a point lies on. */
#ifndef FLAT_TRAINER_H
#define FLAT_TRAINER_H

#include <stddef.h>

typedef struct flat_tensor {
  const char *name;
  size_t offset, elems; /* in both buffers */
} flat_tensor;

typedef struct flat_trainer {
  float *weights, *gradients; /* `elems` each */
  size_t elems;
  flat_tensor tensors[6];
  unsigned random;
} flat_trainer;

typedef struct adamw {
  float lr, beta1, beta2, eps, weight_decay;
} adamw;

/* 1 on success. */
int flat_trainer_make(flat_trainer *trainer);
void flat_trainer_free(flat_trainer *trainer);
/* One batch of points: fills `gradients`, returns the mean cross-entropy in nats. */
double flat_trainer_backward(flat_trainer *trainer);
/* Share of 300 fresh points that are told right. */
double flat_trainer_accuracy(flat_trainer *trainer);
/* L2 norm of the gradients; infinite or NaN if one of them is. */
double flat_trainer_norm(const flat_trainer *trainer);

#endif
