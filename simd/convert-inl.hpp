// SPDX-License-Identifier: Apache-2.0
/// FP16 <-> FP32 over spans.
#include "simd/highway_targets.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "simd/convert.hpp"

#include "hwy/highway.h"

#include "simd/fp16-inl.hpp"

#if defined(OUTBOARD_SIMD_CONVERT_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef OUTBOARD_SIMD_CONVERT_INL_HPP_
#undef OUTBOARD_SIMD_CONVERT_INL_HPP_
#else
#define OUTBOARD_SIMD_CONVERT_INL_HPP_
#endif

HWY_BEFORE_NAMESPACE();
namespace outboard::simd::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline void HalfToFloat(std::span<const std::uint16_t> half, std::span<float> out) {
  const hn::ScalableTag<float> df;
  const hn::Rebind<std::uint16_t, decltype(df)> dh;
  const std::size_t lanes = hn::Lanes(df);
  std::size_t i = 0;
  for (; i + lanes <= out.size(); i += lanes) {
    hn::StoreU(FromHalf(df, hn::LoadU(dh, half.data() + i)), df, out.data() + i);
  }
  if (i == out.size()) return;
  HWY_ALIGN std::uint16_t from[hn::MaxLanes(df)] = {};
  HWY_ALIGN float to[hn::MaxLanes(df)] = {};
  std::copy(half.begin() + static_cast<std::ptrdiff_t>(i), half.end(), from);
  hn::Store(FromHalf(df, hn::LoadU(dh, from)), df, to);
  std::copy_n(to, out.size() - i, out.data() + i);
}

inline std::uint64_t FloatToHalf(std::span<const float> value, std::span<std::uint16_t> out) {
  const hn::ScalableTag<float> df;
  const hn::Rebind<std::uint16_t, decltype(df)> dh;
  const std::size_t lanes = hn::Lanes(df);
  std::uint64_t overflowed = 0;
  std::size_t i = 0;
  for (; i + lanes <= out.size(); i += lanes) {
    const auto vector = hn::LoadU(df, value.data() + i);
    hn::StoreU(ToHalf(df, vector), dh, out.data() + i);
    overflowed += CountHalfOverflow(df, vector);
  }
  if (i == out.size()) return overflowed;
  HWY_ALIGN float from[hn::MaxLanes(df)] = {};
  HWY_ALIGN std::uint16_t to[hn::MaxLanes(df)] = {};
  std::copy(value.begin() + static_cast<std::ptrdiff_t>(i), value.end(), from);
  const auto vector = hn::Load(df, from);
  hn::StoreU(ToHalf(df, vector), dh, to);
  std::copy_n(to, out.size() - i, out.data() + i);
  return overflowed + CountHalfOverflow(df, vector);
}

}  // namespace outboard::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // OUTBOARD_SIMD_CONVERT_INL_HPP_
