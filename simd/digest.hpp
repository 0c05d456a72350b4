// SPDX-License-Identifier: Apache-2.0
/// State digest: a sum modulo 2^64 over elements, so any shard adds its part in any order.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace outboard::simd {

struct DigestShard {
  std::uint64_t parameter = 0;      ///< registration index
  std::uint64_t first_element = 0;  ///< of the parameter, where the spans start
  std::span<const float> param;
  std::array<std::span<const float>, 2> state;  ///< the rule's, in its order; empty counts as zeros
  std::span<const float> ema = {};              ///< empty: nothing is added for it
};

/// Sum modulo 2^64 over elements of mix(parameter, element, bits of param and state). Same value on
/// every target and for every split. In 64-bit arithmetic modulo 2^64, where
///   scramble(z): z = (z ^ z>>30) * 0xBF58476D1CE4E5B9; z = (z ^ z>>27) * 0x94D049BB133111EB;
///                z ^ z>>31
/// the mix is
///   key  = scramble((parameter + 1) * 0x9E3779B97F4A7C15) + element * 0x9E3779B97F4A7C15
///   z    = key ^ state[1];  z = (z ^ z>>32) * 0xBF58476D1CE4E5B9;  z = z ^ z>>29
///   mix  = scramble(z ^ (state[0] << 32 | param))
/// It is a bijection of (param, state[0]) for a given key and state[1], and of state[1] or of the
/// element for given others: a change of one of them alone always shows. With `ema` each element
/// adds a second mix, of key ^ 0x6A09E667F3BCC908, zeros, and the bits of ema for state[1].
std::uint64_t digest_state(const DigestShard& shard) noexcept;

}  // namespace outboard::simd
