/* SPDX-License-Identifier: Apache-2.0 */
/* The trainer's loop: it knows no more of its optimizer than optimizer.h says. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "optimizer.h"

int main(int argc, char **argv) {
  const adamw settings = {3e-3F, 0.9F, 0.999F, 1e-8F, 0.01F};
  const int steps = argc > 1 ? atoi(argv[1]) : 1500;
  flat_trainer trainer;
  optimizer *chosen = NULL;
  int step, skipped = 0, clipped = 0;
  if (flat_trainer_make(&trainer)) chosen = optimizer_make(&trainer, &settings);
  if (chosen == NULL) return 1;
  for (step = 0; step <= steps; ++step) {
    double loss, norm, clip;
    if (!optimizer_before_forward(chosen)) return 1;
    loss = flat_trainer_backward(&trainer);
    norm = flat_trainer_norm(&trainer);
    if (step % 250 == 0) printf("step %5d  loss %.6f  gradient norm %.4f\n", step, loss, norm);
    if (!isfinite(norm)) { /* the trainer's own decision */
      ++skipped;
      continue;
    }
    clip = norm > 0.5 ? 0.5 / norm : 1.0;
    clipped += clip < 1.0;
    if (!optimizer_step(chosen, clip)) return 1;
  }
  if (!optimizer_before_forward(chosen)) return 1;
  printf("%d steps clipped, %d skipped; %.1f %% of fresh points told right\n", clipped, skipped,
         100.0 * flat_trainer_accuracy(&trainer));
  optimizer_free(chosen);
  flat_trainer_free(&trainer);
  return 0;
}
