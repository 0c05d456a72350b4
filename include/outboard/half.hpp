// SPDX-License-Identifier: Apache-2.0
/// 16-bit floating-point bits to and from float, one value at a time, branch-free enough to
/// vectorise. half: IEEE binary16; bf16: bfloat16.
#pragma once

#include <bit>
#include <cstdint>

namespace outboard {

/// Exact. Infinities and NaN survive.
[[nodiscard]] constexpr float half_to_float(std::uint16_t half) noexcept {
  const std::uint32_t magnitude = half & 0x7FFFu;
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
  const std::uint32_t shifted = magnitude << 13;
  const std::uint32_t normal = shifted + 0x38000000u;  // exponent bias 15 -> 127
  const auto tiny =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(shifted | 0x38800000u) - 0x1p-14f);
  const std::uint32_t special = shifted | 0x7F800000u;
  const std::uint32_t finite = magnitude < 0x400u ? tiny : normal;
  return std::bit_cast<float>(sign | (magnitude > 0x7BFFu ? special : finite));
}

/// Rounds to nearest even. Too big becomes infinity, NaN a quiet NaN.
[[nodiscard]] constexpr std::uint16_t half_from_float(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits & 0x80000000u;
  const std::uint32_t a = bits ^ sign;
  const std::uint32_t normal = (a + ((a >> 13) & 1u) + 0xC8000FFFu) >> 13;
  // Below 2^-14 adding 0.5 lines the half's last bit up with the float's: the FPU rounds for us.
  const std::uint32_t tiny =
      std::bit_cast<std::uint32_t>((a < 0x38800000u ? std::bit_cast<float>(a) : 0.0f) + 0.5f) -
      0x3F000000u;
  const std::uint32_t big = a > 0x7F800000u ? 0x7E00u : 0x7C00u;
  const std::uint32_t result = a > 0x477FFFFFu ? big : (a < 0x38800000u ? tiny : normal);
  return static_cast<std::uint16_t>(result | (sign >> 16));
}

/// Exact. Infinities and NaN survive.
[[nodiscard]] constexpr float bf16_to_float(std::uint16_t bits) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

/// Rounds to nearest even. Too big becomes infinity, NaN a quiet NaN.
[[nodiscard]] constexpr std::uint16_t bf16_from_float(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const bool is_nan = (bits & 0x7FFFFFFFu) > 0x7F800000u;
  const std::uint32_t rounded = bits + 0x7FFFu + ((bits >> 16) & 1u);
  return static_cast<std::uint16_t>((is_nan ? (bits & 0x80000000u) | 0x7FC00000u : rounded) >> 16);
}

}  // namespace outboard
