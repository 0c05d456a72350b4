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

HWY_EXPORT(ToFloat);
HWY_EXPORT(FromFloat);

void to_float(const ConstElements& elements, std::span<float> out) noexcept {
  OUTBOARD_SIMD_DISPATCH(ToFloat)(elements, out);
}

std::uint64_t from_float(std::span<const float> value, const Elements& out) noexcept {
  return OUTBOARD_SIMD_DISPATCH(FromFloat)(value, out);
}

}  // namespace outboard::simd
#endif  // HWY_ONCE
