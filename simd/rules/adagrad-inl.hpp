// SPDX-License-Identifier: Apache-2.0
/// Adagrad on one vector.
#include "simd/highway_targets.hpp"

#include <cstddef>

#include "simd/rules/adagrad.hpp"

#include "hwy/highway.h"

#include "simd/update-inl.hpp"

#if defined(OUTBOARD_SIMD_RULES_ADAGRAD_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef OUTBOARD_SIMD_RULES_ADAGRAD_INL_HPP_
#undef OUTBOARD_SIMD_RULES_ADAGRAD_INL_HPP_
#else
#define OUTBOARD_SIMD_RULES_ADAGRAD_INL_HPP_
#endif

HWY_BEFORE_NAMESPACE();
namespace outboard::simd::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

struct AdagradRule {
  using Scalars = AdagradScalars;
  static constexpr std::size_t kStates = 1;
  static constexpr bool kReadsGradient = true;
  static constexpr bool kWritesState = true;

  template <class DF, class V>
  static HWY_INLINE void Step(DF df, const Scalars& scalars, V stored_grad, V& param, V& sum,
                              V& /*state1*/) {
    const auto scaled = ScaledGradient(df, scalars.coeff, stored_grad);
    const auto grad = DecayedGradient(df, scaled, scalars.weight_decay, param);
    // The square of less than 2^-63 would be subnormal.
    const auto big_grad = FlushBelow(df, grad, 0x1p-63F);
    const auto kept = hn::IfThenZeroElse(hn::Lt(sum, hn::Set(df, 0x1p-126F)), sum);
    const auto largest = hn::Set(df, hwy::HighestValue<float>());
    const auto next = hn::Add(kept, hn::Mul(big_grad, big_grad));
    sum = hn::IfThenElse(hn::Gt(next, largest), largest, next);
    const auto divisor = hn::Add(hn::Sqrt(sum), hn::Set(df, scalars.eps));
    param = hn::Sub(param, hn::Mul(hn::Set(df, scalars.step_size), hn::Div(grad, divisor)));
  }
};

}  // namespace outboard::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // OUTBOARD_SIMD_RULES_ADAGRAD_INL_HPP_
