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

/// Sum modulo 2^64 over elements of mix(parameter, element, bits of param, exp_avg, exp_avg_sq).
/// Same value on every target and for every split. In 64-bit arithmetic modulo 2^64, where
///   scramble(z): z = (z ^ z>>30) * 0xBF58476D1CE4E5B9; z = (z ^ z>>27) * 0x94D049BB133111EB;
///                z ^ z>>31
/// the mix is
///   key  = scramble((parameter + 1) * 0x9E3779B97F4A7C15) + element * 0x9E3779B97F4A7C15
///   z    = key ^ exp_avg_sq;  z = (z ^ z>>32) * 0xBF58476D1CE4E5B9;  z = z ^ z>>29
///   mix  = scramble(z ^ (exp_avg << 32 | param))
/// It is a bijection of (param, exp_avg) for a given key and exp_avg_sq, and of exp_avg_sq or of
/// the element for given others: a change of one of them alone always shows.
std::uint64_t digest_state(const DigestShard& shard) noexcept;

}  // namespace outboard::simd
