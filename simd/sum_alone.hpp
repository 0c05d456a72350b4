// SPDX-License-Identifier: Apache-2.0
/// reduce_gradient() without its search for what is not finite, to measure what that costs. No part
/// of the library.
#pragma once

#include <cstddef>

#include "simd/format.hpp"

namespace outboard::simd {

/// GradientReduction::sum_of_squares, bit for bit, if all elements are finite.
double sum_of_finite_squares(const ConstElements& grad, std::size_t size) noexcept;

}  // namespace outboard::simd
