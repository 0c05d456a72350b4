// SPDX-License-Identifier: Apache-2.0
#include "simd/reduce.hpp"

#include "simd/highway_targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/reduce.cpp"
#include "hwy/foreach_target.h"

#include "hwy/highway.h"

#include "simd/reduce-inl.hpp"

#if HWY_ONCE
#include "simd/dispatch.hpp"

namespace outboard::simd {

HWY_EXPORT(ReduceGradientFp16);
HWY_EXPORT(ReduceGradientFp32);
HWY_EXPORT(BlockSumOfSquares);

GradientReduction reduce_gradient(std::span<const std::uint16_t> grad_fp16) noexcept {
  return OUTBOARD_SIMD_DISPATCH(ReduceGradientFp16)(grad_fp16);
}

GradientReduction reduce_gradient(std::span<const float> grad_fp32) noexcept {
  return OUTBOARD_SIMD_DISPATCH(ReduceGradientFp32)(grad_fp32);
}

double block_sum_of_squares(std::span<const std::uint16_t> grad_fp16) noexcept {
  return OUTBOARD_SIMD_DISPATCH(BlockSumOfSquares)(grad_fp16);
}

}  // namespace outboard::simd
#endif  // HWY_ONCE
