// SPDX-License-Identifier: Apache-2.0
/// Well-mixed bits from a counter, a seed or an id.
#pragma once

#include <bit>
#include <cstdint>

namespace outboard::core {

/// From one state of splitmix64 to the next.
inline constexpr std::uint64_t kMix64Step = 0x9E3779B97F4A7C15u;

/// What splitmix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA
/// 2014) draws from state `value`: a bijection of 64 bits.
[[nodiscard]] constexpr std::uint64_t mix64(std::uint64_t value) noexcept {
  value += kMix64Step;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
  return value ^ (value >> 31);
}

/// What a state digest starts from, and what each parameter adds for the steps it has taken; its
/// elements come on top (simd/digest.hpp).
[[nodiscard]] constexpr std::uint64_t digest_of_scale(double loss_scale) noexcept {
  return mix64(std::bit_cast<std::uint64_t>(loss_scale));
}
[[nodiscard]] constexpr std::uint64_t digest_of_steps(std::uint64_t parameter,
                                                      std::uint64_t step_count) noexcept {
  return mix64(mix64(parameter + 1) + step_count);
}

}  // namespace outboard::core
