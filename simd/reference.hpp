// SPDX-License-Identifier: Apache-2.0
/// Every rule in double, for tests and benchmarks. See simd/reference/common.hpp.
#pragma once

#include "simd/reference/adagrad.hpp"
#include "simd/reference/adam.hpp"
#include "simd/reference/adamw.hpp"
#include "simd/reference/lamb.hpp"
#include "simd/reference/lion.hpp"
#include "simd/reference/sgd.hpp"

namespace outboard::simd::reference {

/// One whole step of one element, nothing rounded but the gradient.
template <class Scalars>
Element step(const Scalars& scalars, const Element& old, double stored) {
  const double grad = gradient(scalars, stored, old.param);
  Element now = old;
  for (std::size_t which = 0; which < kStates<Scalars>; ++which) {
    now.state[which] = state_line(scalars, which, old.state[which], grad).value;
  }
  now.param = old.param - update_line(scalars, old, now, grad).value;
  return now;
}

}  // namespace outboard::simd::reference
