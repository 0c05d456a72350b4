// SPDX-License-Identifier: Apache-2.0
/// State digest: a sum modulo 2^64 over elements, so any shard adds its part in any order.
#pragma once

#include <cstdint>
#include <span>

namespace outboard::simd {

struct DigestShard {
  std::uint64_t parameter = 0;      ///< registration index
  std::uint64_t first_element = 0;  ///< of the parameter, where the spans start
  std::span<const float> param, exp_avg, exp_avg_sq;
};

/// Sum over elements of mix(parameter, element, bits of param, exp_avg, exp_avg_sq); the mix is
/// written out in docs/numerics.md. Same value on every target and for every split.
std::uint64_t digest_state(const DigestShard& shard) noexcept;

}  // namespace outboard::simd
