// SPDX-License-Identifier: Apache-2.0
/// What the gate decides from the gradients' scalars: skip or apply, and with which coefficient.
#pragma once

#include <cstdint>

namespace outboard::optim {

/// Sums over all parameters with a gradient, in registration order.
struct GradientTotals {
  double sum_of_squares = 0.0;  ///< of the finite elements, as the device left them (scaled)
  bool any_inf = false;
  bool any_nan = false;
};

struct StepDecision {
  bool overflow = false;
  double grad_norm = 0.0;  ///< unscaled, before clipping; NaN or Inf if any element is
  double clip = 1.0;
  double coeff = 1.0;  ///< clip / divisor
};

/// `divisor` is loss_scale * accumulation. norm = sqrt(sum)/divisor in double; a norm of 2^63 or
/// more is an overflow. clip = min(1, max_grad_norm/(norm + 1e-6)); 1 if max_grad_norm is 0 or
/// infinite.
[[nodiscard]] StepDecision decide_step(const GradientTotals& totals, double divisor,
                                       double max_grad_norm) noexcept;

}  // namespace outboard::optim
