// SPDX-License-Identifier: Apache-2.0
#include "optim/step_decision.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace outboard::optim {

StepDecision decide_step(const GradientTotals& totals, double divisor,
                         double max_grad_norm) noexcept {
  StepDecision decision;
  decision.grad_norm = std::sqrt(totals.sum_of_squares) / divisor;
  if (totals.any_inf) decision.grad_norm = std::numeric_limits<double>::infinity();
  if (totals.any_nan) decision.grad_norm = std::numeric_limits<double>::quiet_NaN();
  decision.overflow = !(decision.grad_norm < 0x1p63);
  if (decision.overflow) return decision;
  if (max_grad_norm > 0.0 && std::isfinite(max_grad_norm)) {
    decision.clip = std::min(1.0, max_grad_norm / (decision.grad_norm + 1e-6));
  }
  decision.coeff = decision.clip / divisor;
  return decision;
}

}  // namespace outboard::optim
