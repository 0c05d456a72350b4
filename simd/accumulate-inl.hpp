// SPDX-License-Identifier: Apache-2.0
/// Adds FP16 gradients to FP32 sums, vector by vector.
#include "simd/highway_targets.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "simd/accumulate.hpp"

#include "hwy/highway.h"

#include "simd/fp16-inl.hpp"

#if defined(OUTBOARD_SIMD_ACCUMULATE_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef OUTBOARD_SIMD_ACCUMULATE_INL_HPP_
#undef OUTBOARD_SIMD_ACCUMULATE_INL_HPP_
#else
#define OUTBOARD_SIMD_ACCUMULATE_INL_HPP_
#endif

HWY_BEFORE_NAMESPACE();
namespace outboard::simd::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class DF>
HWY_INLINE void AccumulateVector(DF df, const std::uint16_t* grad, float* sum, bool first) {
  const auto value = FromHalf(df, hn::LoadU(hn::Rebind<std::uint16_t, DF>(), grad));
  hn::StoreU(first ? value : hn::Add(hn::LoadU(df, sum), value), df, sum);
}

inline void Accumulate(const AccumulateShard& shard) {
  const hn::ScalableTag<float> df;
  const std::size_t lanes = hn::Lanes(df);
  const std::size_t size = shard.sum.size();
  const std::uint16_t* grad = shard.grad_fp16.data();
  float* sum = shard.sum.data();
  const bool first = shard.first;
  std::size_t i = 0;
  for (; i + lanes <= size; i += lanes) AccumulateVector(df, grad + i, sum + i, first);
  if (i == size) return;
  HWY_ALIGN std::uint16_t grad_tail[hn::MaxLanes(df)] = {};
  HWY_ALIGN float sum_tail[hn::MaxLanes(df)] = {};
  std::copy_n(grad + i, size - i, grad_tail);
  std::copy_n(sum + i, size - i, sum_tail);
  AccumulateVector(df, grad_tail, sum_tail, first);
  std::copy_n(sum_tail, size - i, sum + i);
}

}  // namespace outboard::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // OUTBOARD_SIMD_ACCUMULATE_INL_HPP_
