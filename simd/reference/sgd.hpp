// SPDX-License-Identifier: Apache-2.0
/// SGD in double.
#pragma once

#include "simd/reference/common.hpp"
#include "simd/rules/sgd.hpp"

namespace outboard::simd::reference {

template <>
inline constexpr std::size_t kStates<SgdScalars> = 1;

inline double gradient(const SgdScalars& scalars, double stored, double param) {
  return decayed_gradient(stored, scalars.coeff, scalars.weight_decay, param);
}
/// Without momentum there is no state: whatever stands for it stays.
inline Line state_line(const SgdScalars& scalars, std::size_t /*which*/, double old, double grad) {
  if (scalars.momentum == 0.0F) return {old, 0.0};
  if (scalars.first) return {grad, 0.0};
  return two_terms(static_cast<double>(scalars.momentum) * read(old, kTiny),
                   static_cast<double>(scalars.one_minus_dampening) * grad);
}
inline Line update_line(const SgdScalars& scalars, const Element& /*old*/, const Element& now,
                        double grad) {
  const double lr = scalars.lr;
  if (scalars.momentum == 0.0F) return {lr * grad, std::fabs(lr * grad)};
  double update = read(now.state[0], kTiny);
  if (scalars.nesterov) {
    const double ahead = product(static_cast<double>(scalars.momentum), update);
    update = read(sum(grad, ahead), kTiny);
  }
  return {lr * update, std::fabs(lr * update)};
}

}  // namespace outboard::simd::reference
