// SPDX-License-Identifier: Apache-2.0
#include "optim/rule_scalars.hpp"

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "core/mix64.hpp"

namespace outboard::optim {
namespace {

using core::mix64;

constexpr double kSmallestNormal = FLT_MIN;

/// Finite and never -0: the kernels need not multiply with an operand that is read as +0.
float rounded(double value) {
  constexpr double kLargest = FLT_MAX;
  return static_cast<float>(std::min(value, kLargest)) + 0.0F;
}

/// What the rules of Adam's family have in common.
template <class Scalars, class AnyAdam>
Scalars moments(const AnyAdam& rule, std::uint64_t step, double coeff) {
  Scalars out;
  out.beta1 = rounded(rule.beta1);
  out.one_minus_beta1 = rounded(1.0 - rule.beta1);
  out.beta2 = rounded(rule.beta2);
  out.one_minus_beta2 = rounded(1.0 - rule.beta2);
  out.eps = rounded(rule.eps);
  out.inv_sqrt_bias2 = rounded(1.0 / std::sqrt(1.0 - integer_power(rule.beta2, step)));
  out.coeff = rounded(coeff);
  out.exp_avg_sq_floor = static_cast<float>(kSmallestNormal / rule.beta2);  // beta2 0: infinite
  out.grad_sq_floor = rounded(std::sqrt(kSmallestNormal / (1.0 - rule.beta2)));
  return out;
}

template <class AnyAdam>
double bias1(const AnyAdam& rule, std::uint64_t step) {
  return 1.0 - integer_power(rule.beta1, step);
}

}  // namespace

double integer_power(double base, std::uint64_t exponent) noexcept {
  double result = 1.0;
  for (double square = base; exponent != 0; exponent >>= 1, square *= square) {
    if ((exponent & 1) != 0) result *= square;
  }
  return result;
}

simd::AdamWScalars scalars(const AdamW& rule, std::uint64_t step, double coeff) noexcept {
  auto out = moments<simd::AdamWScalars>(rule, step, coeff);
  out.step_size = rounded(rule.lr / bias1(rule, step));
  out.lr_wd = rounded(rule.lr * rule.weight_decay);
  return out;
}

simd::AdamScalars scalars(const Adam& rule, std::uint64_t step, double coeff) noexcept {
  auto out = moments<simd::AdamScalars>(rule, step, coeff);
  out.step_size = rounded(rule.lr / bias1(rule, step));
  out.weight_decay = rounded(rule.weight_decay);
  return out;
}

simd::SgdScalars scalars(const Sgd& rule, std::uint64_t step, double coeff) noexcept {
  simd::SgdScalars out;
  out.lr = rounded(rule.lr);
  out.momentum = rounded(rule.momentum);
  out.one_minus_dampening = rounded(1.0 - rule.dampening);
  out.weight_decay = rounded(rule.weight_decay);
  out.coeff = rounded(coeff);
  out.first = step == 1;
  out.nesterov = rule.nesterov;
  return out;
}

simd::LionScalars scalars(const Lion& rule, std::uint64_t /*step*/, double coeff) noexcept {
  simd::LionScalars out;
  out.beta1 = rounded(rule.beta1);
  out.one_minus_beta1 = rounded(1.0 - rule.beta1);
  out.beta2 = rounded(rule.beta2);
  out.one_minus_beta2 = rounded(1.0 - rule.beta2);
  out.lr = rounded(rule.lr);
  out.lr_wd = rounded(rule.lr * rule.weight_decay);
  out.coeff = rounded(coeff);
  return out;
}

simd::AdagradScalars scalars(const Adagrad& rule, std::uint64_t step, double coeff) noexcept {
  simd::AdagradScalars out;
  out.step_size = rounded(rule.lr / (1.0 + static_cast<double>(step - 1) * rule.lr_decay));
  out.eps = rounded(rule.eps);
  out.weight_decay = rounded(rule.weight_decay);
  out.coeff = rounded(coeff);
  return out;
}

simd::LambScalars scalars(const Lamb& rule, std::uint64_t step, double coeff) noexcept {
  auto out = moments<simd::LambScalars>(rule, step, coeff);
  out.inv_bias1 = rounded(1.0 / bias1(rule, step));
  out.weight_decay = rounded(rule.weight_decay);
  return out;
}

simd::RuleScalars scalars(const Rule& rule, std::uint64_t step, double coeff) noexcept {
  return std::visit(
      [&](const auto& kind) -> simd::RuleScalars { return scalars(kind, step, coeff); }, rule);
}

simd::UpdateOptions update_options(const GroupOptions& options, std::uint64_t parameter,
                                   std::uint64_t step) noexcept {
  simd::UpdateOptions out;
  if (options.rounding == Rounding::stochastic) {
    out.rounding = {true, mix64(mix64(mix64(options.seed) + parameter) + step)};
  }
  if (options.ema_decay) out.ema_one_minus_decay = rounded(1.0 - *options.ema_decay);
  return out;
}

float initial_state(const Rule& rule) noexcept {
  const auto* adagrad = std::get_if<Adagrad>(&rule);
  return adagrad == nullptr ? 0.0F : rounded(adagrad->initial_accumulator);
}

}  // namespace outboard::optim
