// SPDX-License-Identifier: Apache-2.0
/// The digest's mix on vectors of 64-bit lanes.
#include "simd/highway_targets.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>

#include "simd/digest.hpp"

#include "hwy/highway.h"

#if defined(OUTBOARD_SIMD_DIGEST_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef OUTBOARD_SIMD_DIGEST_INL_HPP_
#undef OUTBOARD_SIMD_DIGEST_INL_HPP_
#else
#define OUTBOARD_SIMD_DIGEST_INL_HPP_
#endif

HWY_BEFORE_NAMESPACE();
namespace outboard::simd::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline constexpr std::uint64_t kDigestStride = 0x9E3779B97F4A7C15;
inline constexpr std::uint64_t kDigestMul1 = 0xBF58476D1CE4E5B9;
inline constexpr std::uint64_t kDigestMul2 = 0x94D049BB133111EB;

template <int kShift, class V>
HWY_INLINE V XorShift(V value) {
  return hn::Xor(value, hn::ShiftRight<kShift>(value));
}

/// One bijection of 64 bits that lets every input bit reach every output bit.
template <class D, class V>
HWY_INLINE V Scramble(D du, V value) {
  const auto once = hn::Mul(XorShift<30>(value), hn::Set(du, kDigestMul1));
  const auto twice = hn::Mul(XorShift<27>(once), hn::Set(du, kDigestMul2));
  return XorShift<31>(twice);
}

/// What the elements of one parameter start from, before their index is added.
inline std::uint64_t DigestSeed(std::uint64_t parameter) {
  std::uint64_t seed = (parameter + 1) * kDigestStride;
  seed = (seed ^ (seed >> 30)) * kDigestMul1;
  seed = (seed ^ (seed >> 27)) * kDigestMul2;
  return seed ^ (seed >> 31);
}

/// The three words of one vector of elements, and their keys.
template <class D, class V>
HWY_INLINE V MixElements(D du, V key, const float* param, const float* exp_avg,
                         const float* exp_avg_sq) {
  const hn::Rebind<float, D> df;
  const hn::RebindToUnsigned<decltype(df)> dw;
  const auto words = [&](const float* from) {
    return hn::PromoteTo(du, hn::BitCast(dw, hn::LoadU(df, from)));
  };
  const auto with_square = hn::Xor(key, words(exp_avg_sq));
  const auto hashed = XorShift<29>(hn::Mul(XorShift<32>(with_square), hn::Set(du, kDigestMul1)));
  const auto pair = hn::Or(words(param), hn::ShiftLeft<32>(words(exp_avg)));
  return Scramble(du, hn::Xor(hashed, pair));
}

inline std::uint64_t DigestState(const DigestShard& shard) {
  const hn::ScalableTag<std::uint64_t> du;
  const std::size_t lanes = hn::Lanes(du);
  const std::size_t size = shard.param.size();
  const auto stride = hn::Set(du, kDigestStride * lanes);
  auto key = hn::Add(hn::Set(du, DigestSeed(shard.parameter) + shard.first_element * kDigestStride),
                     hn::Mul(hn::Iota(du, 0), hn::Set(du, kDigestStride)));
  auto sum = hn::Zero(du);
  std::size_t i = 0;
  for (; i + lanes <= size; i += lanes, key = hn::Add(key, stride)) {
    sum = hn::Add(sum, MixElements(du, key, shard.param.data() + i, shard.exp_avg.data() + i,
                                   shard.exp_avg_sq.data() + i));
  }
  if (i < size) {
    HWY_ALIGN float words[3][hn::MaxLanes(du)] = {};
    std::copy_n(shard.param.data() + i, size - i, words[0]);
    std::copy_n(shard.exp_avg.data() + i, size - i, words[1]);
    std::copy_n(shard.exp_avg_sq.data() + i, size - i, words[2]);
    const auto mixed = MixElements(du, key, words[0], words[1], words[2]);
    sum = hn::Add(sum, hn::IfThenElseZero(hn::FirstN(du, size - i), mixed));
  }
  // Not SumOfLanes: g++ adds the lanes of 512 bits as signed numbers, whose overflow is undefined.
  HWY_ALIGN std::uint64_t partial[hn::MaxLanes(du)];
  hn::Store(sum, du, partial);
  return std::accumulate(partial, partial + lanes, std::uint64_t{0});
}

}  // namespace outboard::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // OUTBOARD_SIMD_DIGEST_INL_HPP_
