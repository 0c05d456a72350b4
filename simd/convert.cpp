// SPDX-License-Identifier: Apache-2.0
#include "simd/convert.hpp"

#include "simd/highway_targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/convert.cpp"
#include "hwy/foreach_target.h"

#include "hwy/highway.h"

#include "simd/convert-inl.hpp"

#if HWY_ONCE
#include "simd/dispatch.hpp"

namespace outboard::simd {

HWY_EXPORT(HalfToFloat);
HWY_EXPORT(FloatToHalf);

void half_to_float(std::span<const std::uint16_t> half, std::span<float> out) noexcept {
  OUTBOARD_SIMD_DISPATCH(HalfToFloat)(half, out);
}

std::uint64_t float_to_half(std::span<const float> value, std::span<std::uint16_t> out) noexcept {
  return OUTBOARD_SIMD_DISPATCH(FloatToHalf)(value, out);
}

}  // namespace outboard::simd
#endif  // HWY_ONCE
