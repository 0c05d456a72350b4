// SPDX-License-Identifier: Apache-2.0
/// Lion on one vector.
#include "simd/highway_targets.hpp"

#include <cstddef>

#include "simd/rules/lion.hpp"

#include "hwy/highway.h"

#include "simd/update-inl.hpp"

#if defined(OUTBOARD_SIMD_RULES_LION_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef OUTBOARD_SIMD_RULES_LION_INL_HPP_
#undef OUTBOARD_SIMD_RULES_LION_INL_HPP_
#else
#define OUTBOARD_SIMD_RULES_LION_INL_HPP_
#endif

HWY_BEFORE_NAMESPACE();
namespace outboard::simd::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

struct LionRule {
  using Scalars = LionScalars;
  static constexpr std::size_t kStates = 1;
  static constexpr bool kReadsGradient = true;
  static constexpr bool kWritesState = true;

  template <class DF, class V>
  static HWY_INLINE void Step(DF df, const Scalars& scalars, V stored_grad, V& param, V& exp_avg,
                              V& /*state1*/) {
    const auto grad = hn::Mul(stored_grad, hn::Set(df, scalars.coeff));
    const auto old = exp_avg;
    const auto mixed = [&](float beta, float one_minus_beta) {
      return hn::Add(MulUnlessTiny(df, beta, old), MulUnlessTiny(df, one_minus_beta, grad));
    };
    const auto direction = mixed(scalars.beta1, scalars.one_minus_beta1);
    exp_avg = mixed(scalars.beta2, scalars.one_minus_beta2);
    const auto signed_lr = hn::CopySign(hn::Set(df, scalars.lr), direction);
    const auto step = hn::IfThenZeroElse(hn::Eq(direction, hn::Zero(df)), signed_lr);
    const auto decay = MulUnlessTiny(df, scalars.lr_wd, param);
    param = hn::Sub(param, hn::Add(decay, step));
  }
};

}  // namespace outboard::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // OUTBOARD_SIMD_RULES_LION_INL_HPP_
