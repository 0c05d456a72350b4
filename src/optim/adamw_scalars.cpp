// SPDX-License-Identifier: Apache-2.0
#include "optim/adamw_scalars.hpp"

#include <cfloat>
#include <cmath>

namespace outboard::optim {

double integer_power(double base, std::uint64_t exponent) noexcept {
  double result = 1.0;
  for (double square = base; exponent != 0; exponent >>= 1, square *= square) {
    if ((exponent & 1) != 0) result *= square;
  }
  return result;
}

simd::AdamWScalars adamw_scalars(const AdamW& settings, std::uint64_t step, double coeff) noexcept {
  const double bias1 = 1.0 - integer_power(settings.beta1, step);
  const double bias2 = 1.0 - integer_power(settings.beta2, step);
  const double smallest_normal = FLT_MIN;
  simd::AdamWScalars scalars;
  scalars.beta1 = static_cast<float>(settings.beta1);
  scalars.one_minus_beta1 = static_cast<float>(1.0 - settings.beta1);
  scalars.beta2 = static_cast<float>(settings.beta2);
  scalars.one_minus_beta2 = static_cast<float>(1.0 - settings.beta2);
  scalars.eps = static_cast<float>(settings.eps);
  scalars.step_size = static_cast<float>(settings.lr / bias1);
  scalars.lr_wd = static_cast<float>(settings.lr * settings.weight_decay);
  scalars.inv_sqrt_bias2 = static_cast<float>(1.0 / std::sqrt(bias2));
  scalars.coeff = static_cast<float>(coeff);
  scalars.exp_avg_sq_floor = static_cast<float>(smallest_normal / settings.beta2);
  scalars.grad_sq_floor = static_cast<float>(std::sqrt(smallest_normal / (1.0 - settings.beta2)));
  return scalars;
}

}  // namespace outboard::optim
