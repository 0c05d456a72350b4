// SPDX-License-Identifier: Apache-2.0
/// Adagrad in double.
#pragma once

#include "simd/reference/common.hpp"
#include "simd/rules/adagrad.hpp"

namespace outboard::simd::reference {

template <>
inline constexpr std::size_t kStates<AdagradScalars> = 1;

inline double gradient(const AdagradScalars& scalars, double stored, double param) {
  return decayed_gradient(stored, scalars.coeff, scalars.weight_decay, param);
}
inline Line state_line(const AdagradScalars& /*scalars*/, std::size_t /*which*/, double old,
                       double grad) {
  const double big = read(grad, 0x1p-63);
  Line line = two_terms(read(old, static_cast<double>(FLT_MIN)), big * big);
  line.value = std::fmin(line.value, static_cast<double>(FLT_MAX));
  line.scale = std::fmin(line.scale, static_cast<double>(FLT_MAX));
  return line;
}
inline Line update_line(const AdagradScalars& scalars, const Element& /*old*/, const Element& now,
                        double grad) {
  const double step_size = scalars.step_size;
  const double divisor = std::sqrt(now.state[0]) + static_cast<double>(scalars.eps);
  const double amount = step_size * (grad / divisor);
  return {amount, std::fabs(amount), lost_quotient(step_size)};
}

}  // namespace outboard::simd::reference
