/* SPDX-License-Identifier: Apache-2.0 */
/* The same optimizer, offloaded: state, update and schedule are the engine's. The trainer keeps its
 * two flat buffers, its gradient norm, its clipping and its decision to skip. */
#include <stdio.h>
#include <stdlib.h>

#include "optimizer.h"
#include "outboard/outboard.h"

struct optimizer {
  flat_trainer *trainer;
  outboard_engine *engine;
};

static int holds(outboard_status status) {
  if (status != OUTBOARD_OK) fprintf(stderr, "outboard: %s\n", outboard_last_error());
  return status == OUTBOARD_OK;
}

static int add_tensors(optimizer *self, uint32_t group) {
  uint32_t id;
  for (int i = 0; i < 6; ++i) { /* ids count up from 0, as the tensors do */
    const flat_tensor *tensor = &self->trainer->tensors[i];
    outboard_parameter parameter;
    outboard_parameter_init(&parameter);
    parameter.name = tensor->name;
    parameter.dtype = OUTBOARD_F32;
    parameter.elems = tensor->elems;
    parameter.data = self->trainer->weights + tensor->offset;
    parameter.group = group;
    if (!holds(outboard_add_parameter(self->engine, &parameter, &id))) return 0;
  }
  return holds(outboard_commit(self->engine));
}

static int set_up(optimizer *self, const adamw *settings) {
  outboard_device *device = NULL;
  outboard_config config;
  outboard_group group;
  uint32_t id = 0;
  outboard_config_init(&config);
  config.dynamic_loss_scale = 0;
  config.initial_loss_scale = 1.0; /* the trainer has its own */
  outboard_group_init(&group, OUTBOARD_ADAMW);
  group.lr = settings->lr;
  group.beta1 = settings->beta1;
  group.beta2 = settings->beta2;
  group.eps = settings->eps;
  group.weight_decay = settings->weight_decay;
  return holds(outboard_device_open("host", &device)) &&
         holds(outboard_engine_create(device, &config, &self->engine)) &&
         holds(outboard_device_close(device)) && /* the engine keeps it */
         holds(outboard_add_group(self->engine, &group, &id)) && add_tensors(self, id);
}

optimizer *optimizer_make(flat_trainer *trainer, const adamw *settings) {
  optimizer *made = calloc(1, sizeof(*made));
  if (made == NULL) return NULL;
  made->trainer = trainer;
  if (set_up(made, settings)) return made;
  optimizer_free(made);
  return NULL;
}

void optimizer_free(optimizer *self) {
  holds(outboard_engine_destroy(self->engine));
  free(self);
}

int optimizer_before_forward(optimizer *self) {
  for (uint32_t i = 0; i < 6; ++i) {
    if (!holds(outboard_wait(self->engine, i, 0))) return 0;
  }
  return 1;
}

int optimizer_step(optimizer *self, double clip) {
  for (uint32_t i = 0; i < 6; ++i) {
    const float *gradient = self->trainer->gradients + self->trainer->tensors[i].offset;
    if (!holds(outboard_gradient_ready(self->engine, i, gradient, 0))) return 0;
  }
  return holds(outboard_set_gradient_divisor(self->engine, 1.0 / clip)) &&
         holds(outboard_step(self->engine, NULL));
}
