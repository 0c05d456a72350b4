// SPDX-License-Identifier: Apache-2.0
/// FP16 <-> FP32 on vectors, the same bits on every target: by the CPU's own instructions where
/// they are sure to be there, else in integer arithmetic and one float addition.
#include "simd/highway_targets.hpp"

#include <cstdint>

#include "hwy/highway.h"

#if defined(OUTBOARD_SIMD_FP16_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef OUTBOARD_SIMD_FP16_INL_HPP_
#undef OUTBOARD_SIMD_FP16_INL_HPP_
#else
#define OUTBOARD_SIMD_FP16_INL_HPP_
#endif

HWY_BEFORE_NAMESPACE();
namespace outboard::simd::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// F16C is part of what Highway calls AVX2. Its instructions round to nearest even whatever the mode
// bits say; where Highway has to emulate them, it does not.
#undef OUTBOARD_SIMD_HAS_F16C
#if (HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3) && !defined(HWY_DISABLE_F16C)
#define OUTBOARD_SIMD_HAS_F16C 1
#else
#define OUTBOARD_SIMD_HAS_F16C 0
#endif

/// Half bits to float. Exact; Inf survives; NaN becomes quiet and keeps its payload.
template <class DF>
HWY_INLINE hn::Vec<DF> FromHalf(DF df, hn::Vec<hn::Rebind<std::uint16_t, DF>> half) {
#if OUTBOARD_SIMD_HAS_F16C
  return hn::PromoteTo(df, hn::BitCast(hn::Rebind<hwy::float16_t, DF>(), half));
#else
  const hn::RebindToUnsigned<DF> du;
  const hn::RebindToSigned<DF> di;
  const auto above = [&](auto value, std::int32_t limit) {
    return hn::RebindMask(du, hn::Gt(hn::BitCast(di, value), hn::Set(di, limit)));
  };
  const auto bits = hn::PromoteTo(du, half);
  const auto magnitude = hn::And(bits, hn::Set(du, 0x7FFFu));
  const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(du, 0x8000u)));
  const auto shifted = hn::ShiftLeft<13>(magnitude);
  const auto normal = hn::Add(shifted, hn::Set(du, 0x38000000u));  // 127 - 15 more in the exponent
  // A half subnormal is fraction * 2^-24: put the fraction below 2^-14's one and take that off
  // again, so that no float subnormal is touched.
  const auto with_one = hn::BitCast(df, hn::Or(shifted, hn::Set(du, 0x38800000u)));
  const auto tiny = hn::BitCast(du, hn::Sub(with_one, hn::Set(df, 0x1p-14f)));
  const auto finite = hn::IfThenElse(above(magnitude, 0x3FF), normal, tiny);
  const auto infinite = hn::Or(shifted, hn::Set(du, 0x7F800000u));
  const auto quiet = hn::IfThenElseZero(above(magnitude, 0x7C00), hn::Set(du, 0x00400000u));
  const auto special = hn::Or(infinite, quiet);
  return hn::BitCast(df, hn::Or(sign, hn::IfThenElse(above(magnitude, 0x7BFF), special, finite)));
#endif
}

/// Float to half bits, nearest even; too big becomes Inf; NaN becomes quiet and keeps the upper
/// bits of its payload.
template <class DF>
HWY_INLINE hn::Vec<hn::Rebind<std::uint16_t, DF>> ToHalf(DF df, hn::Vec<DF> value) {
  const hn::Rebind<std::uint16_t, DF> dh;
#if OUTBOARD_SIMD_HAS_F16C
  (void)df;
  return hn::BitCast(dh, hn::DemoteTo(hn::Rebind<hwy::float16_t, DF>(), value));
#else
  const hn::RebindToUnsigned<DF> du;
  const hn::RebindToSigned<DF> di;
  const auto bits = hn::BitCast(du, value);
  const auto sign = hn::And(bits, hn::Set(du, 0x80000000u));
  const auto magnitude = hn::Xor(bits, sign);
  const auto above = [&](std::int32_t limit) {
    return hn::RebindMask(du, hn::Gt(hn::BitCast(di, magnitude), hn::Set(di, limit)));
  };
  const auto top = hn::ShiftRight<13>(magnitude);
  const auto odd = hn::And(top, hn::Set(du, 1u));
  // Takes 127 - 15 off the exponent and adds half an ulp less one, plus one where the half is odd.
  const auto rounded = hn::Add(hn::Add(magnitude, odd), hn::Set(du, 0xC8000FFFu));
  const auto normal = hn::ShiftRight<13>(rounded);
  // Adding 0.5 lets the float adder round to multiples of 2^-24, the half subnormals.
  const auto shifted = hn::Add(hn::BitCast(df, magnitude), hn::Set(df, 0.5f));
  const auto tiny = hn::Sub(hn::BitCast(du, shifted), hn::Set(du, 0x3F000000u));
  const auto finite = hn::IfThenElse(above(0x387FFFFF), normal, tiny);  // from 2^-14 on
  const auto quiet = hn::Or(hn::And(top, hn::Set(du, 0x1FFu)), hn::Set(du, 0x7E00u));
  const auto big = hn::IfThenElse(above(0x7F800000), quiet, hn::Set(du, 0x7C00u));
  const auto result = hn::IfThenElse(above(0x477FFFFF), big, finite);  // from 65536 on
  return hn::DemoteTo(dh, hn::BitCast(di, hn::Or(result, hn::ShiftRight<16>(sign))));
#endif
}

}  // namespace outboard::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // OUTBOARD_SIMD_FP16_INL_HPP_
