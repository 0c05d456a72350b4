// SPDX-License-Identifier: Apache-2.0
/// Adds gradients to FP32 sums, vector by vector.
#include "simd/highway_targets.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "simd/accumulate.hpp"

#include "hwy/highway.h"

#include "simd/formats-inl.hpp"

#if defined(OUTBOARD_SIMD_ACCUMULATE_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef OUTBOARD_SIMD_ACCUMULATE_INL_HPP_
#undef OUTBOARD_SIMD_ACCUMULATE_INL_HPP_
#else
#define OUTBOARD_SIMD_ACCUMULATE_INL_HPP_
#endif

HWY_BEFORE_NAMESPACE();
namespace outboard::simd::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class DF, class Format>
HWY_INLINE void AccumulateVector(DF df, Format format, const typename Format::Bits* grad,
                                 float* sum, bool first) {
  const auto value = LoadElements(df, format, grad);
  hn::StoreU(first ? value : hn::Add(hn::LoadU(df, sum), value), df, sum);
}

template <class Format>
inline void AccumulateElements(const AccumulateShard& shard) {
  using Bits = typename Format::Bits;
  const hn::ScalableTag<float> df;
  const std::size_t lanes = hn::Lanes(df);
  const std::size_t size = shard.sum.size();
  const Bits* grad = static_cast<const Bits*>(shard.grad.data);
  float* sum = shard.sum.data();
  const bool first = shard.first;
  std::size_t i = 0;
  for (; i + lanes <= size; i += lanes) AccumulateVector(df, Format(), grad + i, sum + i, first);
  if (i == size) return;
  HWY_ALIGN Bits grad_tail[hn::MaxLanes(df)] = {};
  HWY_ALIGN float sum_tail[hn::MaxLanes(df)] = {};
  std::copy_n(grad + i, size - i, grad_tail);
  std::copy_n(sum + i, size - i, sum_tail);
  AccumulateVector(df, Format(), grad_tail, sum_tail, first);
  std::copy_n(sum_tail, size - i, sum + i);
}

inline void Accumulate(const AccumulateShard& shard) {
  switch (shard.grad.format) {
    case Format::f16:
      return AccumulateElements<F16>(shard);
    case Format::bf16:
      return AccumulateElements<BF16>(shard);
    case Format::f32:
      return AccumulateElements<F32>(shard);
  }
}

}  // namespace outboard::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // OUTBOARD_SIMD_ACCUMULATE_INL_HPP_
