// SPDX-License-Identifier: Apache-2.0
/// AdamW in double, and the lines that Adam and LAMB share with it.
#pragma once

#include "simd/reference/common.hpp"
#include "simd/rules/adamw.hpp"

namespace outboard::simd::reference {

/// Lines m (0) and v (1).
template <class Scalars>
Line moment_line(const Scalars& scalars, std::size_t which, double old, double grad) {
  if (which == 0) {
    return two_terms(static_cast<double>(scalars.beta1) * read(old, kTiny),
                     static_cast<double>(scalars.one_minus_beta1) * grad);
  }
  const double kept = old < static_cast<double>(scalars.exp_avg_sq_floor) ? 0.0 : old;
  const double big = read(grad, static_cast<double>(scalars.grad_sq_floor));
  Line line = two_terms(static_cast<double>(scalars.beta2) * kept,
                        static_cast<double>(scalars.one_minus_beta2) * big * big);
  line.scale = line.value;
  return line;
}

/// m / d.
template <class Scalars>
double direction(const Scalars& scalars, const Element& now) {
  return now.state[0] / (std::sqrt(now.state[1]) * static_cast<double>(scalars.inv_sqrt_bias2) +
                         static_cast<double>(scalars.eps));
}

inline double gradient(const AdamWScalars& scalars, double stored, double /*param*/) {
  return scaled_gradient(stored, scalars.coeff);
}
inline Line state_line(const AdamWScalars& scalars, std::size_t which, double old, double grad) {
  return moment_line(scalars, which, old, grad);
}
inline Line update_line(const AdamWScalars& scalars, const Element& old, const Element& now,
                        double /*grad*/) {
  const double step_size = scalars.step_size;
  const double amount = static_cast<double>(scalars.lr_wd) * read(old.param, kTiny) +
                        step_size * direction(scalars, now);
  return {amount, std::fabs(amount), lost_quotient(step_size)};
}

}  // namespace outboard::simd::reference
