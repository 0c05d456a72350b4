// SPDX-License-Identifier: Apache-2.0
/// What the kernels compute, one element at a time in double and written to be read: for tests.
///
/// Each line takes the kernel's own float results of the lines before it, so that its error can be
/// bounded; `adamw_element` is the whole step in double. Thresholds are applied as in the kernels.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "simd/adamw.hpp"

namespace outboard::simd::reference {

inline constexpr double kTiny = 0x1p-100;

/// The number that half bits stand for.
inline double half_value(std::uint16_t bits) {
  const double sign = (bits & 0x8000U) != 0 ? -1.0 : 1.0;
  const int exponent = (bits >> 10) & 0x1F;
  const int fraction = bits & 0x3FF;
  if (exponent == 0x1F) {
    return fraction != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  }
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

/// The operand as it is read: +0 if its magnitude is below the threshold.
inline double read(double value, double threshold) {
  return std::fabs(value) < threshold ? 0.0 : value;
}

/// Line g. The product of a half and a float is exact in double, so rounding it is all that the
/// float multiplication does: this is the kernel's g to the bit.
inline float gradient(std::uint16_t grad_fp16, const AdamWScalars& scalars) {
  const auto product =
      static_cast<float>(half_value(grad_fp16) * static_cast<double>(scalars.coeff));
  return static_cast<float>(read(static_cast<double>(product), kTiny));
}

/// A sum of two terms; errors are measured against the larger one.
struct TwoTerms {
  double first = 0.0;
  double second = 0.0;
  [[nodiscard]] double sum() const { return first + second; }
  [[nodiscard]] double larger() const { return std::fmax(std::fabs(first), std::fabs(second)); }
};

/// Line m.
inline TwoTerms exp_avg(double old, double grad, const AdamWScalars& scalars) {
  return {static_cast<double>(scalars.beta1) * read(old, kTiny),
          static_cast<double>(scalars.one_minus_beta1) * grad};
}

/// Line v.
inline TwoTerms exp_avg_sq(double old, double grad, const AdamWScalars& scalars) {
  const double kept = old < static_cast<double>(scalars.exp_avg_sq_floor) ? 0.0 : old;
  const double big = read(grad, static_cast<double>(scalars.grad_sq_floor));
  return {static_cast<double>(scalars.beta2) * kept,
          static_cast<double>(scalars.one_minus_beta2) * big * big};
}

/// Lines d and u: decay and step, to be taken off the master weight.
inline TwoTerms update(double param, double exp_avg, double exp_avg_sq,
                       const AdamWScalars& scalars) {
  const double denominator = std::sqrt(exp_avg_sq) * static_cast<double>(scalars.inv_sqrt_bias2) +
                             static_cast<double>(scalars.eps);
  return {static_cast<double>(scalars.lr_wd) * read(param, kTiny),
          static_cast<double>(scalars.step_size) * (exp_avg / denominator)};
}

/// One element's state in double.
struct AdamWElement {
  double param = 0.0;
  double exp_avg = 0.0;
  double exp_avg_sq = 0.0;
};

/// One whole step of one element, nothing rounded but the gradient.
inline AdamWElement adamw_element(const AdamWElement& old, std::uint16_t grad_fp16,
                                  const AdamWScalars& scalars) {
  const auto grad = static_cast<double>(gradient(grad_fp16, scalars));
  AdamWElement next;
  next.exp_avg = exp_avg(old.exp_avg, grad, scalars).sum();
  next.exp_avg_sq = exp_avg_sq(old.exp_avg_sq, grad, scalars).sum();
  next.param = old.param - update(old.param, next.exp_avg, next.exp_avg_sq, scalars).sum();
  return next;
}

}  // namespace outboard::simd::reference
