/* SPDX-License-Identifier: Apache-2.0 */
/* What the trainer had before: AdamW in a loop over its flat buffers, with its state beside them. */
#include <math.h>
#include <stdlib.h>

#include "optimizer.h"

struct optimizer {
  flat_trainer *trainer;
  adamw settings;
  float *exp_avg, *exp_avg_sq;
  int steps;
};

optimizer *optimizer_make(flat_trainer *trainer, const adamw *settings) {
  optimizer *made = calloc(1, sizeof(*made));
  if (made == NULL) return NULL;
  made->trainer = trainer;
  made->settings = *settings;
  made->exp_avg = calloc(trainer->elems, sizeof(float));
  made->exp_avg_sq = calloc(trainer->elems, sizeof(float));
  return made;
}

void optimizer_free(optimizer *self) {
  free(self->exp_avg);
  free(self->exp_avg_sq);
  free(self);
}

int optimizer_before_forward(optimizer *self) {
  (void)self;
  return 1;
}

int optimizer_step(optimizer *self, double clip) {
  const adamw *s = &self->settings;
  flat_trainer *trainer = self->trainer;
  const float correction1 = 1.0F - powf(s->beta1, (float)(self->steps + 1));
  const float correction2 = 1.0F - powf(s->beta2, (float)(self->steps + 1));
  size_t i;
  for (i = 0; i < trainer->elems; ++i) {
    const float g = (float)clip * trainer->gradients[i];
    float *m = &self->exp_avg[i], *v = &self->exp_avg_sq[i], *w = &trainer->weights[i];
    *m = s->beta1 * *m + (1.0F - s->beta1) * g;
    *v = s->beta2 * *v + (1.0F - s->beta2) * g * g;
    *w -= s->lr * s->weight_decay * *w;
    *w -= s->lr * (*m / correction1) / (sqrtf(*v / correction2) + s->eps);
  }
  self->steps += 1;
  return 1;
}
