/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define IN 2
#define HIDDEN 64
#define CLASSES 3
#define BATCH 64

enum { W1, B1, W2, B2, W3, B3 };

static float uniform(flat_trainer *trainer) {
  trainer->random = trainer->random * 1664525u + 1013904223u;
  return (float)(trainer->random >> 8) / 16777216.0F;
}

int flat_trainer_make(flat_trainer *trainer) {
  static const char *const names[6] = {"w1", "b1", "w2", "b2", "w3", "b3"};
  static const size_t sizes[6] = {IN * HIDDEN,     HIDDEN, HIDDEN * HIDDEN, HIDDEN,
                                  HIDDEN * CLASSES, CLASSES};
  static const size_t inputs[6] = {IN, 0, HIDDEN, 0, HIDDEN, 0};
  size_t i, k;
  memset(trainer, 0, sizeof(*trainer));
  trainer->random = 1;
  for (i = 0; i < 6; ++i) {
    trainer->tensors[i].name = names[i];
    trainer->tensors[i].offset = trainer->elems;
    trainer->tensors[i].elems = sizes[i];
    trainer->elems += sizes[i];
  }
  trainer->weights = calloc(trainer->elems, sizeof(float));
  trainer->gradients = calloc(trainer->elems, sizeof(float));
  if (trainer->weights == NULL || trainer->gradients == NULL) return 0;
  for (i = 0; i < 6; ++i) {
    const float range = inputs[i] > 0 ? sqrtf(6.0F / (float)inputs[i]) : 0.0F;
    for (k = 0; k < sizes[i]; ++k) {
      trainer->weights[trainer->tensors[i].offset + k] = range * (2.0F * uniform(trainer) - 1.0F);
    }
  }
  return 1;
}

void flat_trainer_free(flat_trainer *trainer) {
  free(trainer->weights);
  free(trainer->gradients);
  trainer->weights = trainer->gradients = NULL;
}

static int draw_point(flat_trainer *trainer, float *x) {
  const int label = (int)(uniform(trainer) * CLASSES);
  const float t = uniform(trainer);
  const float angle = 4.5F * t + 2.0943951F * (float)label + 0.1F * (uniform(trainer) - 0.5F);
  x[0] = t * cosf(angle);
  x[1] = t * sinf(angle);
  return label;
}

static float *at(const flat_trainer *trainer, float *buffer, int tensor) {
  return buffer + trainer->tensors[tensor].offset;
}

static void layer(const float *w, const float *b, const float *x, size_t in, float *y, size_t out) {
  size_t i, k;
  for (k = 0; k < out; ++k) {
    y[k] = b[k];
    for (i = 0; i < in; ++i) y[k] += w[k * in + i] * x[i];
  }
}

static void relu(float *x) {
  int i;
  for (i = 0; i < HIDDEN; ++i) x[i] = x[i] > 0.0F ? x[i] : 0.0F;
}

typedef struct pass {
  float x[IN], h1[HIDDEN], h2[HIDDEN], out[CLASSES];
} pass;

static void forward(const flat_trainer *trainer, pass *p) {
  float *w = trainer->weights;
  layer(at(trainer, w, W1), at(trainer, w, B1), p->x, IN, p->h1, HIDDEN);
  relu(p->h1);
  layer(at(trainer, w, W2), at(trainer, w, B2), p->h1, HIDDEN, p->h2, HIDDEN);
  relu(p->h2);
  layer(at(trainer, w, W3), at(trainer, w, B3), p->h2, HIDDEN, p->out, CLASSES);
}

/* `out` becomes the gradient of the loss in it. */
static double softmax_loss(float *out, int label) {
  float most = out[0], sum = 0.0F;
  double loss;
  int i;
  for (i = 1; i < CLASSES; ++i) most = out[i] > most ? out[i] : most;
  for (i = 0; i < CLASSES; ++i) sum += out[i] = expf(out[i] - most);
  loss = -log((double)(out[label] / sum));
  for (i = 0; i < CLASSES; ++i) out[i] = out[i] / sum / BATCH;
  out[label] -= 1.0F / BATCH;
  return loss;
}

/* Adds to the gradients of a layer; `dx`, if there is one, gets the gradient in its input. */
static void layer_back(flat_trainer *trainer, int tensor, const float *x, size_t in,
                       const float *dy, size_t out, float *dx) {
  const float *w = at(trainer, trainer->weights, tensor);
  float *dw = at(trainer, trainer->gradients, tensor);
  float *db = at(trainer, trainer->gradients, tensor + 1);
  size_t i, k;
  if (dx != NULL) memset(dx, 0, in * sizeof(float));
  for (k = 0; k < out; ++k) {
    db[k] += dy[k];
    for (i = 0; i < in; ++i) {
      dw[k * in + i] += dy[k] * x[i];
      if (dx != NULL && x[i] > 0.0F) dx[i] += dy[k] * w[k * in + i];
    }
  }
}

double flat_trainer_backward(flat_trainer *trainer) {
  double loss = 0.0;
  int i;
  memset(trainer->gradients, 0, trainer->elems * sizeof(float));
  for (i = 0; i < BATCH; ++i) {
    pass p;
    float d2[HIDDEN], d1[HIDDEN];
    const int label = draw_point(trainer, p.x);
    forward(trainer, &p);
    loss += softmax_loss(p.out, label) / BATCH;
    layer_back(trainer, W3, p.h2, HIDDEN, p.out, CLASSES, d2);
    layer_back(trainer, W2, p.h1, HIDDEN, d2, HIDDEN, d1);
    layer_back(trainer, W1, p.x, IN, d1, HIDDEN, NULL);
  }
  return loss;
}

double flat_trainer_accuracy(flat_trainer *trainer) {
  int right = 0, i;
  for (i = 0; i < 300; ++i) {
    pass p;
    const int label = draw_point(trainer, p.x);
    int best = 0, k;
    forward(trainer, &p);
    for (k = 1; k < CLASSES; ++k) best = p.out[k] > p.out[best] ? k : best;
    right += best == label;
  }
  return (double)right / 300.0;
}

double flat_trainer_norm(const flat_trainer *trainer) {
  double sum = 0.0;
  size_t i;
  for (i = 0; i < trainer->elems; ++i) {
    sum += (double)trainer->gradients[i] * (double)trainer->gradients[i];
  }
  return sqrt(sum);
}
