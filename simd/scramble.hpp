// SPDX-License-Identifier: Apache-2.0
/// The 64-bit mix of the digest and of stochastic rounding's key, one number at a time.
#pragma once

#include <cstdint>

namespace outboard::simd {

/// The odd number whose multiples neighbouring keys are apart.
inline constexpr std::uint64_t kScrambleStride = 0x9E3779B97F4A7C15;
inline constexpr std::uint64_t kScrambleMul1 = 0xBF58476D1CE4E5B9;
inline constexpr std::uint64_t kScrambleMul2 = 0x94D049BB133111EB;

/// A bijection of 64 bits that lets every input bit reach every output bit.
[[nodiscard]] constexpr std::uint64_t scramble(std::uint64_t value) noexcept {
  value = (value ^ (value >> 30)) * kScrambleMul1;
  value = (value ^ (value >> 27)) * kScrambleMul2;
  return value ^ (value >> 31);
}

}  // namespace outboard::simd
