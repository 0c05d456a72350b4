// SPDX-License-Identifier: Apache-2.0
/// FP16 <-> FP32 over spans. Own conversions: Highway 1.0.3 rounds toward zero and loses Inf on
/// CPUs without F16C.
#pragma once

#include <cstdint>
#include <span>

namespace outboard::simd {

/// Exact; Inf and NaN survive. Spans equally long.
void half_to_float(std::span<const std::uint16_t> half, std::span<float> out) noexcept;
/// Nearest even; too big becomes Inf. @return finite inputs that became Inf.
std::uint64_t float_to_half(std::span<const float> value, std::span<std::uint16_t> out) noexcept;

}  // namespace outboard::simd
