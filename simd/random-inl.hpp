// SPDX-License-Identifier: Apache-2.0
/// Stochastic rounding's random bits: a function of a key and an element's index, so that shards,
/// threads and targets cannot change them. Formula: docs/numerics.md.
#include "simd/highway_targets.hpp"

#include <cstdint>

#include "simd/scramble.hpp"

#include "hwy/highway.h"

#if defined(OUTBOARD_SIMD_RANDOM_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef OUTBOARD_SIMD_RANDOM_INL_HPP_
#undef OUTBOARD_SIMD_RANDOM_INL_HPP_
#else
#define OUTBOARD_SIMD_RANDOM_INL_HPP_
#endif

HWY_BEFORE_NAMESPACE();
namespace outboard::simd::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

struct RandomKey {
  std::uint32_t before;
  std::uint32_t between;
};

/// The key of 2^32 elements: 64-bit arithmetic once, so that each element needs 32-bit alone.
HWY_INLINE RandomKey KeyOf(std::uint64_t key, std::uint64_t index_high) {
  const std::uint64_t z = scramble(key + (index_high + 1) * kScrambleStride);
  return {static_cast<std::uint32_t>(z), static_cast<std::uint32_t>(z >> 32)};
}

/// 32 bits for each of the elements from `index` (modulo 2^32) on.
template <class DU>
HWY_INLINE hn::Vec<DU> RandomBits(DU du, RandomKey key, std::uint32_t index) {
  auto x = hn::Add(hn::Iota(du, 0), hn::Set(du, index));
  x = hn::Xor(x, hn::Set(du, key.before));
  x = hn::Mul(hn::Xor(x, hn::ShiftRight<16>(x)), hn::Set(du, 0x7FEB352Du));
  x = hn::Add(hn::Xor(x, hn::ShiftRight<15>(x)), hn::Set(du, key.between));
  x = hn::Mul(hn::Xor(x, hn::ShiftRight<15>(x)), hn::Set(du, 0x846CA68Bu));
  return hn::Xor(x, hn::ShiftRight<16>(x));
}

}  // namespace outboard::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // OUTBOARD_SIMD_RANDOM_INL_HPP_
