// SPDX-License-Identifier: Apache-2.0
/// Adam with L2 decay on one vector.
#include "simd/highway_targets.hpp"

#include <cstddef>

#include "simd/rules/adam.hpp"

#include "hwy/highway.h"

#include "simd/rules/adamw-inl.hpp"

#if defined(OUTBOARD_SIMD_RULES_ADAM_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef OUTBOARD_SIMD_RULES_ADAM_INL_HPP_
#undef OUTBOARD_SIMD_RULES_ADAM_INL_HPP_
#else
#define OUTBOARD_SIMD_RULES_ADAM_INL_HPP_
#endif

HWY_BEFORE_NAMESPACE();
namespace outboard::simd::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

struct AdamRule {
  using Scalars = AdamScalars;
  static constexpr std::size_t kStates = 2;
  static constexpr bool kReadsGradient = true;
  static constexpr bool kWritesState = true;

  template <class DF, class V>
  static HWY_INLINE void Step(DF df, const Scalars& scalars, V stored_grad, V& param, V& exp_avg,
                              V& exp_avg_sq) {
    const auto scaled = ScaledGradient(df, scalars.coeff, stored_grad);
    const auto grad = hn::Add(scaled, MulUnlessTiny(df, scalars.weight_decay, param));
    exp_avg = NextExpAvg(df, scalars, exp_avg, grad);
    exp_avg_sq = NextExpAvgSq(df, scalars, exp_avg_sq, grad);
    param = hn::Sub(param, hn::Mul(hn::Set(df, scalars.step_size),
                                   Direction(df, scalars, exp_avg, exp_avg_sq)));
  }
};

}  // namespace outboard::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // OUTBOARD_SIMD_RULES_ADAM_INL_HPP_
