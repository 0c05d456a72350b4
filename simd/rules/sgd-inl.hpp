// SPDX-License-Identifier: Apache-2.0
/// SGD on one vector, with and without momentum.
#include "simd/highway_targets.hpp"

#include <cstddef>

#include "simd/rules/sgd.hpp"

#include "hwy/highway.h"

#include "simd/update-inl.hpp"

#if defined(OUTBOARD_SIMD_RULES_SGD_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef OUTBOARD_SIMD_RULES_SGD_INL_HPP_
#undef OUTBOARD_SIMD_RULES_SGD_INL_HPP_
#else
#define OUTBOARD_SIMD_RULES_SGD_INL_HPP_
#endif

HWY_BEFORE_NAMESPACE();
namespace outboard::simd::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

struct SgdRule {
  using Scalars = SgdScalars;
  static constexpr std::size_t kStates = 0;
  static constexpr bool kReadsGradient = true;
  static constexpr bool kWritesState = false;

  template <class DF, class V>
  static HWY_INLINE void Step(DF df, const Scalars& scalars, V stored_grad, V& param, V& /*state0*/,
                              V& /*state1*/) {
    const auto scaled = ScaledGradient(df, scalars.coeff, stored_grad);
    const auto grad = DecayedGradient(df, scaled, scalars.weight_decay, param);
    param = hn::Sub(param, hn::Mul(hn::Set(df, scalars.lr), grad));
  }
};

struct SgdMomentumRule {
  using Scalars = SgdScalars;
  static constexpr std::size_t kStates = 1;
  static constexpr bool kReadsGradient = true;
  static constexpr bool kWritesState = true;

  template <class DF, class V>
  static HWY_INLINE void Step(DF df, const Scalars& scalars, V stored_grad, V& param, V& momentum,
                              V& /*state1*/) {
    const auto scaled = ScaledGradient(df, scalars.coeff, stored_grad);
    const auto grad = DecayedGradient(df, scaled, scalars.weight_decay, param);
    if (scalars.first) {
      momentum = grad;
    } else {
      momentum = hn::Add(MulUnlessTiny(df, scalars.momentum, momentum),
                         hn::Mul(hn::Set(df, scalars.one_minus_dampening), grad));
    }
    auto update = momentum;
    if (scalars.nesterov) update = hn::Add(grad, MulUnlessTiny(df, scalars.momentum, momentum));
    param = hn::Sub(param, MulUnlessTiny(df, scalars.lr, update));
  }
};

}  // namespace outboard::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // OUTBOARD_SIMD_RULES_SGD_INL_HPP_
