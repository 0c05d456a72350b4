// SPDX-License-Identifier: Apache-2.0
/// The digest's mix on vectors of 64-bit lanes.
#include "simd/highway_targets.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>

#include "simd/digest.hpp"
#include "simd/scramble.hpp"

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

inline constexpr std::uint64_t kDigestEma = 0x6A09E667F3BCC908;

template <int kShift, class V>
HWY_INLINE V XorShift(V value) {
  return hn::Xor(value, hn::ShiftRight<kShift>(value));
}

/// scramble() on vectors.
template <class D, class V>
HWY_INLINE V Scramble(D du, V value) {
  const auto once = hn::Mul(XorShift<30>(value), hn::Set(du, kScrambleMul1));
  const auto twice = hn::Mul(XorShift<27>(once), hn::Set(du, kScrambleMul2));
  return XorShift<31>(twice);
}

/// What the elements of one parameter start from, before their index is added.
HWY_INLINE std::uint64_t DigestSeed(std::uint64_t parameter) {
  return scramble((parameter + 1) * kScrambleStride);
}

/// The bits of one vector of floats.
template <class D>
HWY_INLINE hn::Vec<D> Words(D du, const float* from) {
  const hn::Rebind<float, D> df;
  const hn::RebindToUnsigned<decltype(df)> dw;
  return hn::PromoteTo(du, hn::BitCast(dw, hn::LoadU(df, from)));
}

template <class D, class V>
HWY_INLINE V Mix(D du, V key, V param, V state0, V state1) {
  const auto keyed = hn::Xor(key, state1);
  const auto hashed = XorShift<29>(hn::Mul(XorShift<32>(keyed), hn::Set(du, kScrambleMul1)));
  return Scramble(du, hn::Xor(hashed, hn::Or(param, hn::ShiftLeft<32>(state0))));
}

/// The streams of a shard; null where there is none.
struct DigestStreams {
  const float* param;
  const float* state0;
  const float* state1;
  const float* ema;
};

template <class D, class V>
HWY_INLINE V MixElements(D du, V key, const DigestStreams& at, std::size_t i) {
  auto state0 = hn::Zero(du);
  auto state1 = hn::Zero(du);
  if (at.state0 != nullptr) state0 = Words(du, at.state0 + i);
  if (at.state1 != nullptr) state1 = Words(du, at.state1 + i);
  const auto mixed = Mix(du, key, Words(du, at.param + i), state0, state1);
  if (at.ema == nullptr) return mixed;
  const auto ema_key = hn::Xor(key, hn::Set(du, kDigestEma));
  return hn::Add(mixed, Mix(du, ema_key, hn::Zero(du), hn::Zero(du), Words(du, at.ema + i)));
}

/// The last `count` elements, less than a vector.
template <class D, class V>
HWY_INLINE V MixTail(D du, V key, const DigestStreams& at, std::size_t i, std::size_t count) {
  HWY_ALIGN float words[4][hn::MaxLanes(du)] = {};
  const auto padded = [&](const float* stream, float* room) -> const float* {
    if (stream == nullptr) return nullptr;
    std::copy_n(stream + i, count, room);
    return room;
  };
  const DigestStreams inside = {padded(at.param, words[0]), padded(at.state0, words[1]),
                                padded(at.state1, words[2]), padded(at.ema, words[3])};
  return hn::IfThenElseZero(hn::FirstN(du, count), MixElements(du, key, inside, 0));
}

inline std::uint64_t DigestState(const DigestShard& shard) {
  const hn::ScalableTag<std::uint64_t> du;
  const std::size_t lanes = hn::Lanes(du);
  const std::size_t size = shard.param.size();
  const auto start = [](std::span<const float> stream) {
    return stream.empty() ? nullptr : stream.data();
  };
  const DigestStreams at = {start(shard.param), start(shard.state[0]), start(shard.state[1]),
                            start(shard.ema)};
  const auto stride = hn::Set(du, kScrambleStride * lanes);
  auto key =
      hn::Add(hn::Set(du, DigestSeed(shard.parameter) + shard.first_element * kScrambleStride),
              hn::Mul(hn::Iota(du, 0), hn::Set(du, kScrambleStride)));
  auto sum = hn::Zero(du);
  std::size_t i = 0;
  for (; i + lanes <= size; i += lanes, key = hn::Add(key, stride)) {
    sum = hn::Add(sum, MixElements(du, key, at, i));
  }
  if (i < size) sum = hn::Add(sum, MixTail(du, key, at, i, size - i));
  // Not SumOfLanes: g++ adds the lanes of 512 bits as signed numbers, whose overflow is undefined.
  HWY_ALIGN std::uint64_t partial[hn::MaxLanes(du)];
  hn::Store(sum, du, partial);
  return std::accumulate(partial, partial + lanes, std::uint64_t{0});
}

}  // namespace outboard::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // OUTBOARD_SIMD_DIGEST_INL_HPP_
