/* SPDX-License-Identifier: Apache-2.0 */
/* One step of one parameter through the installed C interface, against the formula by hand. */
#include <math.h>
#include <stdio.h>

#include "outboard/outboard.h"

static int failed(outboard_status status) {
  if (status != OUTBOARD_OK) {
    fprintf(stderr, "%s: %s\n", outboard_status_name(status), outboard_last_error());
  }
  return status != OUTBOARD_OK;
}

int main(void) {
  float weight[3] = {1.0F, 1.0F, 1.0F};
  const float gradient[3] = {0.5F, 0.5F, 0.5F};
  outboard_device *device = NULL;
  outboard_engine *engine = NULL;
  outboard_config config;
  outboard_group group;
  outboard_parameter parameter;
  uint32_t group_id, id;
  outboard_config_init(&config);
  config.dynamic_loss_scale = 0;
  config.initial_loss_scale = 1.0;
  outboard_group_init(&group, OUTBOARD_ADAMW);
  group.lr = 0.1;
  group.weight_decay = 0.5;
  outboard_parameter_init(&parameter);
  parameter.name = "w";
  parameter.dtype = OUTBOARD_F32;
  parameter.elems = 3;
  parameter.data = weight;
  if (failed(outboard_device_open("host", &device)) ||
      failed(outboard_engine_create(device, &config, &engine)) ||
      failed(outboard_add_group(engine, &group, &group_id))) {
    return 2;
  }
  parameter.group = group_id;
  if (failed(outboard_add_parameter(engine, &parameter, &id)) || failed(outboard_commit(engine)) ||
      failed(outboard_wait(engine, id, 0)) ||
      failed(outboard_gradient_ready(engine, id, gradient, 0)) ||
      failed(outboard_step(engine, NULL)) || failed(outboard_wait(engine, id, 0)) ||
      failed(outboard_engine_destroy(engine)) || failed(outboard_device_close(device))) {
    return 2;
  }
  printf("outboard %s from C: weight %.7f\n", outboard_version(), (double)weight[2]);
  /* 1 - 0.1*0.5*1 - 0.1*(0.5/0.5) */
  return fabs((double)weight[2] - 0.85) < 1e-6 ? 0 : 1;
}
