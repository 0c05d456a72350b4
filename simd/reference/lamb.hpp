// SPDX-License-Identifier: Apache-2.0
/// LAMB in double: both phases of one element.
#pragma once

#include "simd/reference/adamw.hpp"
#include "simd/rules/lamb.hpp"

namespace outboard::simd::reference {

inline double gradient(const LambScalars& scalars, double stored, double /*param*/) {
  return scaled_gradient(stored, scalars.coeff);
}
inline Line state_line(const LambScalars& scalars, std::size_t which, double old, double grad) {
  return moment_line(scalars, which, old, grad);
}
/// Line u: the update before learning rate and trust ratio, whose norm is taken.
inline double lamb_update(const LambScalars& scalars, double param, const Element& now) {
  return static_cast<double>(scalars.weight_decay) * read(param, kTiny) +
         static_cast<double>(scalars.inv_bias1) * direction(scalars, now);
}
inline Line update_line(const LambScalars& scalars, const Element& old, const Element& now,
                        double /*grad*/) {
  const double lr_trust = scalars.lr_trust;
  const double update = lamb_update(scalars, old.param, now);
  // At the threshold rounding decides whether the kernel reads its update as +0.
  const double flushed = std::fabs(update) < 1.001 * kTiny ? 1.001 * kTiny : 0.0;
  // An update beyond the floats is infinite in the kernel, whatever is made of it.
  const double amount = std::fabs(update) > static_cast<double>(FLT_MAX)
                            ? std::copysign(HUGE_VAL, update)
                            : lr_trust * read(update, kTiny);
  return {amount, std::fabs(amount),
          lost_quotient(lr_trust * static_cast<double>(scalars.inv_bias1)) + lr_trust * flushed};
}

}  // namespace outboard::simd::reference
