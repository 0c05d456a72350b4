// SPDX-License-Identifier: Apache-2.0
/// FP16, BF16 <-> FP32 over spans.
#include "simd/highway_targets.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "simd/convert.hpp"

#include "hwy/highway.h"

#include "simd/formats-inl.hpp"

#if defined(OUTBOARD_SIMD_CONVERT_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef OUTBOARD_SIMD_CONVERT_INL_HPP_
#undef OUTBOARD_SIMD_CONVERT_INL_HPP_
#else
#define OUTBOARD_SIMD_CONVERT_INL_HPP_
#endif

HWY_BEFORE_NAMESPACE();
namespace outboard::simd::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class Format>
inline void ElementsToFloat(const void* data, std::span<float> out) {
  using Bits = typename Format::Bits;
  const hn::ScalableTag<float> df;
  const std::size_t lanes = hn::Lanes(df);
  const auto* from = static_cast<const Bits*>(data);
  std::size_t i = 0;
  for (; i + lanes <= out.size(); i += lanes) {
    hn::StoreU(LoadElements(df, Format(), from + i), df, out.data() + i);
  }
  if (i == out.size()) return;
  HWY_ALIGN Bits in_tail[hn::MaxLanes(df)] = {};
  HWY_ALIGN float out_tail[hn::MaxLanes(df)] = {};
  std::copy_n(from + i, out.size() - i, in_tail);
  hn::Store(LoadElements(df, Format(), in_tail), df, out_tail);
  std::copy_n(out_tail, out.size() - i, out.data() + i);
}

template <class Format>
inline std::uint64_t ElementsFromFloat(std::span<const float> value, void* out) {
  using Bits = typename Format::Bits;
  const hn::ScalableTag<float> df;
  const hn::Rebind<Bits, decltype(df)> db;
  const std::size_t lanes = hn::Lanes(df);
  auto* to = static_cast<Bits*>(out);
  std::uint64_t overflowed = 0;
  std::size_t i = 0;
  for (; i + lanes <= value.size(); i += lanes) {
    const auto vector = hn::LoadU(df, value.data() + i);
    hn::StoreU(ToNearest(df, Format(), vector), db, to + i);
    overflowed += CountOverflow(df, Format(), vector);
  }
  if (i == value.size()) return overflowed;
  HWY_ALIGN float in_tail[hn::MaxLanes(df)] = {};
  HWY_ALIGN Bits out_tail[hn::MaxLanes(df)] = {};
  std::copy_n(value.data() + i, value.size() - i, in_tail);
  const auto vector = hn::Load(df, in_tail);
  hn::StoreU(ToNearest(df, Format(), vector), db, out_tail);
  std::copy_n(out_tail, value.size() - i, to + i);
  return overflowed + CountOverflow(df, Format(), vector);
}

inline void ToFloat(const ConstElements& elements, std::span<float> out) {
  switch (elements.format) {
    case Format::f16:
      return ElementsToFloat<F16>(elements.data, out);
    case Format::bf16:
      return ElementsToFloat<BF16>(elements.data, out);
    case Format::f32:
      return ElementsToFloat<F32>(elements.data, out);
  }
}

inline std::uint64_t FromFloat(std::span<const float> value, const Elements& out) {
  switch (out.format) {
    case Format::f16:
      return ElementsFromFloat<F16>(value, out.data);
    case Format::bf16:
      return ElementsFromFloat<BF16>(value, out.data);
    case Format::f32:
      break;
  }
  return ElementsFromFloat<F32>(value, out.data);
}

}  // namespace outboard::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // OUTBOARD_SIMD_CONVERT_INL_HPP_
