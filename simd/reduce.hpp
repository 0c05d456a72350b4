// SPDX-License-Identifier: Apache-2.0
/// Sum of squares and non-finite count of one parameter's gradient, in the fixed tree.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "simd/format.hpp"

namespace outboard::simd {

/// Elements of one block of the tree, counted from the start of the parameter.
inline constexpr std::uint64_t kReduceBlockElems = 4096;

/// Blocks of `elems` elements; the last may be short.
[[nodiscard]] constexpr std::uint64_t reduce_block_count(std::uint64_t elems) noexcept {
  return (elems + kReduceBlockElems - 1) / kReduceBlockElems;
}

struct GradientReduction {
  double sum_of_squares = 0.0;         ///< a non-finite element counts as 0
  std::uint64_t non_finite = 0;        ///< Inf and NaN elements, found on raw exponent bits
  std::uint64_t first_non_finite = 0;  ///< its index; only if non_finite > 0
  bool first_is_nan = false;
};

/// Reduces a whole parameter: blocks of 4,096 elements, tail zero-padded; squares in double; 64
/// lanes (lane l sums elements l, l+64, ...) folded 64 to 1 by halves (lane l += lane l+32, then
/// +16, ...); block sums added in order. Same bits on every target; equal values give equal bits in
/// every format, subnormals as what they are. A caller that splits a parameter at blocks adds up
/// the blocks' sums in order.
GradientReduction reduce_gradient(const ConstElements& grad, std::size_t size) noexcept;

/// The same of FP16 bits, and of FP32 sums.
inline GradientReduction reduce_gradient(std::span<const std::uint16_t> grad_fp16) noexcept {
  return reduce_gradient({grad_fp16.data(), Format::f16}, grad_fp16.size());
}
inline GradientReduction reduce_gradient(std::span<const float> grad_fp32) noexcept {
  return reduce_gradient({grad_fp32.data(), Format::f32}, grad_fp32.size());
}

}  // namespace outboard::simd
