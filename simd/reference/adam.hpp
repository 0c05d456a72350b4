// SPDX-License-Identifier: Apache-2.0
/// Adam with L2 decay in double.
#pragma once

#include "simd/reference/adamw.hpp"
#include "simd/rules/adam.hpp"

namespace outboard::simd::reference {

inline double gradient(const AdamScalars& scalars, double stored, double param) {
  return decayed_gradient(stored, scalars.coeff, scalars.weight_decay, param);
}
inline Line state_line(const AdamScalars& scalars, std::size_t which, double old, double grad) {
  return moment_line(scalars, which, old, grad);
}
inline Line update_line(const AdamScalars& scalars, const Element& /*old*/, const Element& now,
                        double /*grad*/) {
  const double step_size = scalars.step_size;
  const double amount = step_size * direction(scalars, now);
  return {amount, std::fabs(amount), lost_quotient(step_size)};
}

}  // namespace outboard::simd::reference
