// SPDX-License-Identifier: Apache-2.0
/// FP16 and BF16 <-> FP32. Own conversions: Highway 1.0.3 rounds BF16 toward zero, and on CPUs
/// without F16C rounds FP16 toward zero and loses Inf.
#pragma once

#include <cstdint>
#include <span>

#include "simd/format.hpp"

namespace outboard::simd {

/// `out.size()` elements, exact; Inf and NaN survive (an FP16 NaN becomes quiet).
void to_float(const ConstElements& elements, std::span<float> out) noexcept;
/// `value.size()` elements, nearest even; too big becomes Inf, NaN a quiet NaN; FP32 is copied.
/// @return finite inputs that became Inf.
std::uint64_t from_float(std::span<const float> value, const Elements& out) noexcept;

}  // namespace outboard::simd
