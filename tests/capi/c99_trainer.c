/* SPDX-License-Identifier: Apache-2.0 */
/* A whole trainer in C99: fits y = 2x - 1 by gradient descent with momentum, skips a step by
 * itself, moves a weight, saves, and goes on in a second engine. Ends with 0 if all of it holds. */
#define _POSIX_C_SOURCE 200809L /* mkdtemp */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "outboard/outboard.h"

#define POINTS 64

static int failures = 0;

static void check(outboard_status status, const char *what) {
  if (status == OUTBOARD_OK) return;
  printf("%s: %s: %s\n", what, outboard_status_name(status), outboard_last_error());
  ++failures;
}

static void expect(int holds, const char *what) {
  if (holds) return;
  printf("does not hold: %s\n", what);
  ++failures;
}

static unsigned lines_logged = 0;

static void log_line(void *user, outboard_log_level level, const char *text) {
  (void)level;
  if (text[0] != '\0') ++*(unsigned *)user;
}

static outboard_engine *make_engine(outboard_device *device, float *line, uint32_t *id) {
  outboard_engine *engine = NULL;
  outboard_config config;
  outboard_group group;
  outboard_parameter parameter;
  uint32_t group_id = 99;
  outboard_config_init(&config);
  config.dynamic_loss_scale = 0;
  config.initial_loss_scale = 1.0;
  config.log = log_line;
  config.log_user = &lines_logged;
  check(outboard_engine_create(device, &config, &engine), "create");
  outboard_group_init(&group, OUTBOARD_SGD);
  group.lr = 0.1;
  group.momentum = 0.9;
  check(outboard_add_group(engine, &group, &group_id), "add_group");
  outboard_parameter_init(&parameter);
  parameter.name = "line";
  parameter.dtype = OUTBOARD_F32;
  parameter.elems = 2;
  parameter.data = line;
  parameter.group = group_id;
  check(outboard_add_parameter(engine, &parameter, id), "add_parameter");
  check(outboard_commit(engine), "commit");
  return engine;
}

/* Mean squared error of line[0] * x + line[1], and its gradient. */
static double loss_of(const float *line, float *gradient) {
  double loss = 0.0, slope = 0.0, offset = 0.0;
  int i;
  for (i = 0; i < POINTS; ++i) {
    const double x = (double)i / POINTS * 2.0 - 1.0;
    const double error = (double)line[0] * x + (double)line[1] - (2.0 * x - 1.0);
    loss += error * error / POINTS;
    slope += 2.0 * error * x / POINTS;
    offset += 2.0 * error / POINTS;
  }
  gradient[0] = (float)slope;
  gradient[1] = (float)offset;
  return loss;
}

static double train(outboard_engine *engine, uint32_t id, float **line, int steps) {
  float gradient[2];
  double loss = 0.0;
  int i;
  for (i = 0; i < steps; ++i) {
    outboard_step_result result;
    check(outboard_wait(engine, id, 0), "wait");
    loss = loss_of(*line, gradient);
    check(outboard_gradient_ready(engine, id, gradient, 0), "gradient_ready");
    if (i == 3) { /* the trainer's own decision */
      check(outboard_discard(engine), "discard");
      continue;
    }
    result.struct_size = sizeof(result);
    check(outboard_step(engine, &result), "step");
    expect(result.outcome == OUTBOARD_APPLIED, "a finite gradient is applied");
    expect(fabs(result.grad_norm -
                sqrt((double)gradient[0] * (double)gradient[0] +
                     (double)gradient[1] * (double)gradient[1])) < 1e-6,
           "the norm is the gradient's");
  }
  check(outboard_wait(engine, id, 0), "wait");
  return loss;
}

static void save_and_go_on(outboard_device *device, outboard_engine *engine, uint32_t id,
                           float **line) {
  char folder[] = "/tmp/outboard_c99_XXXXXX";
  char command[64];
  float other[2] = {0.0F, 0.0F};
  float *where = other;
  uint32_t other_id = 99;
  uint64_t digest = 0, other_digest = 1;
  outboard_engine *second = NULL;
  expect(mkdtemp(folder) != NULL, "a temporary folder");
  check(outboard_save(engine, folder, 1), "save");
  second = make_engine(device, other, &other_id);
  check(outboard_load(second, folder, 1), "load");
  train(engine, id, line, 10);
  train(second, other_id, &where, 10);
  check(outboard_state_digest(engine, &digest), "digest");
  check(outboard_state_digest(second, &other_digest), "digest");
  expect(digest == other_digest, "a run that goes on from a checkpoint has the same bits");
  check(outboard_engine_destroy(second), "destroy");
  sprintf(command, "rm -rf %s", folder);
  expect(system(command) == 0, "the folder is removed");
}

int main(void) {
  outboard_device *device = NULL;
  outboard_engine *engine = NULL;
  outboard_stats stats;
  uint32_t id = 99;
  float *line = malloc(2 * sizeof(float));
  float *moved = malloc(2 * sizeof(float));
  float exp_avg[2];
  char report[256];
  size_t needed = 0;
  double loss;
  if (line == NULL || moved == NULL) return 1;
  line[0] = line[1] = 0.0F;
  check(outboard_device_open("host", &device), "open");
  engine = make_engine(device, line, &id);
  check(outboard_device_close(device), "close"); /* the engine keeps it */
  train(engine, id, &line, 60);
  memcpy(moved, line, 2 * sizeof(float));
  check(outboard_rebind(engine, id, moved), "rebind");
  free(line);
  line = moved;
  loss = train(engine, id, &line, 60);
  expect(loss < 1e-3, "the line is found");
  expect(outboard_read_state(engine, id, "exp_avg", exp_avg, 2) == OUTBOARD_INVALID_ARGUMENT,
         "SGD has no exp_avg");
  expect(strstr(outboard_last_error(), "momentum_buffer") != NULL, "the message names what it has");
  check(outboard_describe(engine, report, sizeof(report), &needed), "describe");
  expect(needed > sizeof(report) && strlen(report) == sizeof(report) - 1, "a report is cut to size");
  stats.struct_size = sizeof(stats);
  check(outboard_get_stats(engine, &stats), "stats");
  expect(stats.steps_applied == 118, "two steps of 120 were discarded");
  expect(lines_logged > 0, "the log was called");
  check(outboard_device_open("host", &device), "open");
  save_and_go_on(device, engine, id, &line);
  check(outboard_engine_destroy(engine), "destroy");
  expect(outboard_engine_destroy(engine) == OUTBOARD_INVALID_ARGUMENT, "a second time is refused");
  check(outboard_device_close(device), "close");
  free(line);
  printf("outboard %s in C: loss %.2e, %d failures\n", outboard_version(), loss, failures);
  return failures == 0 ? 0 : 1;
}
