// SPDX-License-Identifier: Apache-2.0
/// Operands that are read as +0 below their thresholds, so that no subnormal slows a step down.
#include "simd/highway_targets.hpp"

#include "hwy/highway.h"

#if defined(OUTBOARD_SIMD_THRESHOLDS_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef OUTBOARD_SIMD_THRESHOLDS_INL_HPP_
#undef OUTBOARD_SIMD_THRESHOLDS_INL_HPP_
#else
#define OUTBOARD_SIMD_THRESHOLDS_INL_HPP_
#endif

HWY_BEFORE_NAMESPACE();
namespace outboard::simd::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Far above the subnormals, so that products with ordinary factors stay normal, and far below
/// anything that moves a weight.
inline constexpr float kTiny = 0x1p-100F;

/// +0 where the magnitude is below `floor`.
template <class DF, class V>
HWY_INLINE V FlushBelow(DF df, V value, float floor) {
  return hn::IfThenZeroElse(hn::Lt(hn::Abs(value), hn::Set(df, floor)), value);
}
template <class DF, class V>
HWY_INLINE V FlushTiny(DF df, V value) {
  return FlushBelow(df, value, kTiny);
}

/// `factor` * `value`, which is read as +0 where `size` is below `floor`. The factor is finite and
/// at least +0, or the same product before.
template <class DF, class V>
HWY_INLINE V MulUnlessBelow(DF df, V factor, V value, V size, float floor) {
#if HWY_TARGET == HWY_AVX3
  const auto keep = _mm512_cmp_ps_mask(size.raw, hn::Set(df, floor).raw, _CMP_NLT_UQ);
  return V{_mm512_maskz_mul_ps(keep, factor.raw, value.raw)};
#else
  return hn::Mul(factor, hn::IfThenZeroElse(hn::Lt(size, hn::Set(df, floor)), value));
#endif
}
template <class DF, class V>
HWY_INLINE V MulUnlessTiny(DF df, float factor, V value) {
  return MulUnlessBelow(df, hn::Set(df, factor), value, hn::Abs(value), kTiny);
}

/// Line g of every rule.
template <class DF, class V>
HWY_INLINE V ScaledGradient(DF df, float coeff, V grad) {
  return FlushTiny(df, hn::Mul(grad, hn::Set(df, coeff)));
}

/// Line g with L2 decay: the weight's part is added to the gradient.
template <class DF, class V>
HWY_INLINE V DecayedGradient(DF df, V scaled, float weight_decay, V param) {
  return FlushTiny(df, hn::Add(scaled, MulUnlessTiny(df, weight_decay, param)));
}

}  // namespace outboard::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // OUTBOARD_SIMD_THRESHOLDS_INL_HPP_
