// SPDX-License-Identifier: Apache-2.0
/// Lion in double.
#pragma once

#include "simd/reference/common.hpp"
#include "simd/rules/lion.hpp"

namespace outboard::simd::reference {

template <>
inline constexpr std::size_t kStates<LionScalars> = 1;

inline double gradient(const LionScalars& scalars, double stored, double /*param*/) {
  return scaled_gradient(stored, scalars.coeff);
}
inline Line state_line(const LionScalars& scalars, std::size_t /*which*/, double old, double grad) {
  return two_terms(static_cast<double>(scalars.beta2) * read(old, kTiny),
                   static_cast<double>(scalars.one_minus_beta2) * grad);
}
/// The direction is the kernel's own float: where its terms cancel, rounding decides its sign.
inline Line update_line(const LionScalars& scalars, const Element& old, const Element& /*now*/,
                        double grad) {
  const double mixed = sum(product(static_cast<double>(scalars.beta1), read(old.state[0], kTiny)),
                           product(static_cast<double>(scalars.one_minus_beta1), grad));
  const double sign = mixed == 0.0 ? 0.0 : std::copysign(1.0, mixed);
  const double amount = static_cast<double>(scalars.lr_wd) * read(old.param, kTiny) +
                        static_cast<double>(scalars.lr) * sign;
  return {amount, std::fabs(amount)};
}

}  // namespace outboard::simd::reference
