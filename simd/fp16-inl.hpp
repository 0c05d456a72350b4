// SPDX-License-Identifier: Apache-2.0
/// FP16 <-> FP32 on vectors, in integer arithmetic and one exact or correctly rounded float
/// operation each: the same bits on every target, with and without hardware conversion.
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

/// Half bits to float. Exact; Inf and NaN survive.
template <class DF>
HWY_INLINE hn::Vec<DF> FromHalf(DF df, hn::Vec<hn::Rebind<std::uint16_t, DF>> half) {
  const hn::RebindToUnsigned<DF> du;
  const hn::RebindToSigned<DF> di;
  const auto bits = hn::PromoteTo(du, half);
  const auto magnitude = hn::And(bits, hn::Set(du, 0x7FFFu));
  const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(du, 0x8000u)));
  const auto shifted = hn::ShiftLeft<13>(magnitude);
  const auto normal = hn::Add(shifted, hn::Set(du, 0x38000000u));  // 127 - 15 more in the exponent
  // A half subnormal is fraction * 2^-24: put the fraction below 2^-14's one and take it off again,
  // so that no float subnormal is touched.
  const auto tiny = hn::BitCast(
      du,
      hn::Sub(hn::BitCast(df, hn::Or(shifted, hn::Set(du, 0x38800000u))), hn::Set(df, 0x1p-14f)));
  const auto is_tiny = hn::RebindMask(du, hn::Lt(hn::BitCast(di, magnitude), hn::Set(di, 0x400)));
  const auto finite = hn::IfThenElse(is_tiny, tiny, normal);
  const auto special = hn::Or(shifted, hn::Set(du, 0x7F800000u));
  const auto is_special =
      hn::RebindMask(du, hn::Gt(hn::BitCast(di, magnitude), hn::Set(di, 0x7BFF)));
  return hn::BitCast(df, hn::Or(sign, hn::IfThenElse(is_special, special, finite)));
}

/// Float to half bits, nearest even; too big becomes Inf; every NaN becomes the quiet one.
template <class DF>
HWY_INLINE hn::Vec<hn::Rebind<std::uint16_t, DF>> ToHalf(DF df, hn::Vec<DF> value) {
  const hn::RebindToUnsigned<DF> du;
  const hn::RebindToSigned<DF> di;
  const hn::Rebind<std::uint16_t, DF> dh;
  const auto bits = hn::BitCast(du, value);
  const auto sign = hn::And(bits, hn::Set(du, 0x80000000u));
  const auto magnitude = hn::Xor(bits, sign);
  const auto signed_magnitude = hn::BitCast(di, magnitude);
  const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 1u));
  // Takes 127 - 15 off the exponent and adds half an ulp less one, plus one where the half is odd.
  const auto normal =
      hn::ShiftRight<13>(hn::Add(hn::Add(magnitude, odd), hn::Set(du, 0xC8000FFFu)));
  // Adding 0.5 lets the float adder round to multiples of 2^-24, the half subnormals.
  const auto tiny = hn::Sub(hn::BitCast(du, hn::Add(hn::BitCast(df, magnitude), hn::Set(df, 0.5f))),
                            hn::Set(du, 0x3F000000u));
  const auto is_tiny = hn::RebindMask(du, hn::Lt(signed_magnitude, hn::Set(di, 0x38800000)));
  const auto is_big = hn::RebindMask(du, hn::Gt(signed_magnitude, hn::Set(di, 0x477FFFFF)));
  const auto is_nan = hn::RebindMask(du, hn::Gt(signed_magnitude, hn::Set(di, 0x7F800000)));
  const auto big = hn::IfThenElse(is_nan, hn::Set(du, 0x7E00u), hn::Set(du, 0x7C00u));
  const auto result = hn::IfThenElse(is_big, big, hn::IfThenElse(is_tiny, tiny, normal));
  return hn::DemoteTo(dh, hn::BitCast(di, hn::Or(result, hn::ShiftRight<16>(sign))));
}

/// Lanes of `value` that are finite and whose half is infinite: 65520 is the first to round up.
template <class DF>
HWY_INLINE std::size_t CountHalfOverflow(DF df, hn::Vec<DF> value) {
  const hn::RebindToSigned<DF> di;
  const auto magnitude = hn::BitCast(di, hn::Abs(value));
  const auto overflows = hn::And(hn::VecFromMask(di, hn::Gt(magnitude, hn::Set(di, 0x477FEFFF))),
                                 hn::VecFromMask(di, hn::Lt(magnitude, hn::Set(di, 0x7F800000))));
  const auto mask = hn::MaskFromVec(overflows);
  (void)df;
  return HWY_LIKELY(hn::AllFalse(di, mask)) ? 0 : hn::CountTrue(di, mask);
}

}  // namespace outboard::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // OUTBOARD_SIMD_FP16_INL_HPP_
