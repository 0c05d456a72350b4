// SPDX-License-Identifier: Apache-2.0
/// AdamW on one vector, and the lines that Adam and LAMB share with it.
#include "simd/highway_targets.hpp"

#include <cstddef>

#include "simd/rules/adamw.hpp"

#include "hwy/highway.h"

#include "simd/update-inl.hpp"

#if defined(OUTBOARD_SIMD_RULES_ADAMW_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef OUTBOARD_SIMD_RULES_ADAMW_INL_HPP_
#undef OUTBOARD_SIMD_RULES_ADAMW_INL_HPP_
#else
#define OUTBOARD_SIMD_RULES_ADAMW_INL_HPP_
#endif

HWY_BEFORE_NAMESPACE();
namespace outboard::simd::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Line m, from a gradient that is not flushed yet.
template <class DF, class Scalars, class V>
HWY_INLINE V NextExpAvg(DF df, const Scalars& scalars, V old, V grad) {
  return hn::Add(MulUnlessTiny(df, scalars.beta1, old),
                 MulUnlessTiny(df, scalars.one_minus_beta1, grad));
}

/// Line v.
template <class DF, class Scalars, class V>
HWY_INLINE V NextExpAvgSq(DF df, const Scalars& scalars, V old, V grad) {
  const auto kept =
      MulUnlessBelow(df, hn::Set(df, scalars.beta2), old, old, scalars.exp_avg_sq_floor);
  const auto size = hn::Abs(grad);
  const auto once =
      MulUnlessBelow(df, hn::Set(df, scalars.one_minus_beta2), grad, size, scalars.grad_sq_floor);
  return hn::Add(kept, MulUnlessBelow(df, once, grad, size, scalars.grad_sq_floor));
}

/// m / d.
template <class DF, class Scalars, class V>
HWY_INLINE V Direction(DF df, const Scalars& scalars, V exp_avg, V exp_avg_sq) {
  const auto root = hn::Mul(hn::Sqrt(exp_avg_sq), hn::Set(df, scalars.inv_sqrt_bias2));
  return hn::Div(exp_avg, hn::Add(root, hn::Set(df, scalars.eps)));
}

struct AdamWRule {
  using Scalars = AdamWScalars;
  static constexpr std::size_t kStates = 2;
  static constexpr bool kReadsGradient = true;
  static constexpr bool kWritesState = true;

  template <class DF, class V>
  static HWY_INLINE void Step(DF df, const Scalars& scalars, V stored_grad, V& param, V& exp_avg,
                              V& exp_avg_sq) {
    const auto scaled = hn::Mul(stored_grad, hn::Set(df, scalars.coeff));
    exp_avg = NextExpAvg(df, scalars, exp_avg, scaled);
    // The same gradient for both lines, so that they share its magnitude: what is tiny lies below
    // grad_sq_floor, at least 2^-63, as well.
    exp_avg_sq = NextExpAvgSq(df, scalars, exp_avg_sq, scaled);
    const auto decay = MulUnlessTiny(df, scalars.lr_wd, param);
    const auto step =
        hn::Mul(hn::Set(df, scalars.step_size), Direction(df, scalars, exp_avg, exp_avg_sq));
    param = hn::Sub(param, hn::Add(decay, step));
  }
};

}  // namespace outboard::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // OUTBOARD_SIMD_RULES_ADAMW_INL_HPP_
