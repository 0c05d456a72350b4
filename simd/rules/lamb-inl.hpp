// SPDX-License-Identifier: Apache-2.0
/// LAMB on one vector, and the first phase's walk over blocks.
#include "simd/highway_targets.hpp"

#include <algorithm>
#include <cstddef>
#include <span>

#include "simd/rules/lamb.hpp"

#include "hwy/highway.h"

#include "simd/reduce-inl.hpp"
#include "simd/rules/adamw-inl.hpp"

#if defined(OUTBOARD_SIMD_RULES_LAMB_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef OUTBOARD_SIMD_RULES_LAMB_INL_HPP_
#undef OUTBOARD_SIMD_RULES_LAMB_INL_HPP_
#else
#define OUTBOARD_SIMD_RULES_LAMB_INL_HPP_
#endif

HWY_BEFORE_NAMESPACE();
namespace outboard::simd::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Line u: before learning rate and trust ratio.
template <class DF, class V>
HWY_INLINE V LambUpdate(DF df, const LambScalars& scalars, V param, V exp_avg, V exp_avg_sq) {
  const auto decay = MulUnlessTiny(df, scalars.weight_decay, param);
  const auto step =
      hn::Mul(hn::Set(df, scalars.inv_bias1), Direction(df, scalars, exp_avg, exp_avg_sq));
  return hn::Add(decay, step);
}

/// The second phase.
struct LambRule {
  using Scalars = LambScalars;
  static constexpr std::size_t kStates = 2;
  static constexpr bool kReadsGradient = false;
  static constexpr bool kWritesState = false;

  template <class DF, class V>
  static HWY_INLINE void Step(DF df, const Scalars& scalars, V /*grad*/, V& param, V& exp_avg,
                              V& exp_avg_sq) {
    const auto update = LambUpdate(df, scalars, param, exp_avg, exp_avg_sq);
    param = hn::Sub(param, MulUnlessTiny(df, scalars.lr_trust, update));
  }
};

/// The first phase of one vector: new moments; `update` as the second phase will find it.
template <class DF, class Grad>
HWY_INLINE void LambMomentsVector(DF df, const LambScalars& scalars, const Streams<Grad, F32>& at,
                                  std::size_t i, float* update) {
  const auto grad =
      hn::Mul(LoadGradient(df, Grad(), at.grad + i, AllLanes()), hn::Set(df, scalars.coeff));
  const auto exp_avg = NextExpAvg(df, scalars, hn::LoadU(df, at.state0 + i), grad);
  const auto exp_avg_sq = NextExpAvgSq(df, scalars, hn::LoadU(df, at.state1 + i), grad);
  hn::StoreU(exp_avg, df, at.state0 + i);
  hn::StoreU(exp_avg_sq, df, at.state1 + i);
  hn::StoreU(LambUpdate(df, scalars, hn::LoadU(df, at.param + i), exp_avg, exp_avg_sq), df, update);
}

template <class DF, class Grad>
HWY_NOINLINE void LambMomentsPart(DF df, const LambScalars& scalars, Streams<Grad, F32> at,
                                  std::size_t i, std::size_t count, float* update) {
  Padded<DF, Grad, F32> padded;
  CopyIn(at.grad, i, count, padded.grad);
  CopyIn<float>(at.param, i, count, padded.param);
  CopyIn<float>(at.state0, i, count, padded.state0);
  CopyIn<float>(at.state1, i, count, padded.state1);
  const Streams<Grad, F32> inside = {padded.grad,   nullptr,       padded.param,
                                     padded.state0, padded.state1, nullptr};
  LambMomentsVector(df, scalars, inside, 0, padded.weight);
  CopyOut(padded.state0, count, at.state0, i);
  CopyOut(padded.state1, count, at.state1, i);
  CopyOut(padded.weight, count, update, 0);
}

/// One block of `count` elements from element `first` on.
template <class Grad>
inline BlockNorms LambBlock(const LambScalars& given, const Streams<Grad, F32>& at,
                            std::size_t first, std::size_t count) {
  const LambScalars scalars = given;
  const hn::ScalableTag<float> df;
  const std::size_t lanes = hn::Lanes(df);
  HWY_ALIGN float update[kReduceBlockElems];
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    LambMomentsVector(df, scalars, at, first + i, update + i);
  }
  if (i < count) LambMomentsPart(df, scalars, at, first + i, count - i, update + i);
  const auto sum = [count](const float* values) {
    return SumBlock<F32>(std::span<const float>(values, count), false);
  };
  return {sum(at.param + first), sum(update)};
}

template <class Grad>
inline void LambMomentsFrom(const UpdateShard& shard, const LambScalars& scalars,
                            std::span<BlockNorms> norms) {
  const Streams<Grad, F32> at = {static_cast<const typename Grad::Bits*>(shard.grad.data),
                                 nullptr,
                                 shard.param.data(),
                                 shard.state[0].data(),
                                 shard.state[1].data(),
                                 nullptr};
  const std::size_t size = shard.param.size();
  for (std::size_t first = 0; first < size; first += kReduceBlockElems) {
    const std::size_t count = std::min<std::size_t>(kReduceBlockElems, size - first);
    norms[first / kReduceBlockElems] = LambBlock(scalars, at, first, count);
  }
}

inline void LambMoments(const UpdateShard& shard, const LambScalars& scalars,
                        std::span<BlockNorms> norms) {
  switch (shard.grad.format) {
    case Format::f16:
      return LambMomentsFrom<F16>(shard, scalars, norms);
    case Format::bf16:
      return LambMomentsFrom<BF16>(shard, scalars, norms);
    case Format::f32:
      return LambMomentsFrom<F32>(shard, scalars, norms);
  }
}

}  // namespace outboard::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // OUTBOARD_SIMD_RULES_LAMB_INL_HPP_
