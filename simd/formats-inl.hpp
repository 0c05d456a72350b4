// SPDX-License-Identifier: Apache-2.0
/// The element formats on vectors: reading, rounding to nearest and at random, overflow. The same
/// bits on every target.
#include "simd/highway_targets.hpp"

#include <cstddef>
#include <cstdint>

#include "simd/format.hpp"

#include "hwy/highway.h"

#include "simd/fp16-inl.hpp"

#if defined(OUTBOARD_SIMD_FORMATS_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef OUTBOARD_SIMD_FORMATS_INL_HPP_
#undef OUTBOARD_SIMD_FORMATS_INL_HPP_
#else
#define OUTBOARD_SIMD_FORMATS_INL_HPP_
#endif

HWY_BEFORE_NAMESPACE();
namespace outboard::simd::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Each format as a type. Bits: how one element lies in memory. kLargest: the largest finite
/// element. kOverflow: the smallest finite magnitude whose nearest element is infinite.
struct F16 {
  using Bits = std::uint16_t;
  static constexpr float kLargest = 65504.0F;
  static constexpr float kOverflow = 65520.0F;
};
struct BF16 {
  using Bits = std::uint16_t;
  static constexpr float kLargest = 0x1.FEp127F;
  static constexpr float kOverflow = 0x1.FFp127F;
};
struct F32 {
  using Bits = float;
};

template <class DF>
HWY_INLINE hn::Vec<DF> LoadElements(DF df, F16 /*format*/, const std::uint16_t* from) {
  return FromHalf(df, hn::LoadU(hn::Rebind<std::uint16_t, DF>(), from));
}
template <class DF>
HWY_INLINE hn::Vec<DF> LoadElements(DF df, BF16 /*format*/, const std::uint16_t* from) {
  const hn::RebindToUnsigned<DF> du;
  const auto bits = hn::PromoteTo(du, hn::LoadU(hn::Rebind<std::uint16_t, DF>(), from));
  return hn::BitCast(df, hn::ShiftLeft<16>(bits));
}
template <class DF>
HWY_INLINE hn::Vec<DF> LoadElements(DF df, F32 /*format*/, const float* from) {
  return hn::LoadU(df, from);
}

/// Whether all lanes are finite and stay so when they are rounded to nearest.
template <class DF, class Format>
HWY_INLINE bool StaysFinite(DF df, Format /*format*/, hn::Vec<DF> value) {
  return hn::AllTrue(df, hn::Lt(hn::Abs(value), hn::Set(df, Format::kOverflow)));
}

/// The upper 16 bits of each lane.
template <class DF>
HWY_INLINE hn::Vec<hn::Rebind<std::uint16_t, DF>> UpperHalves(
    DF df, hn::Vec<hn::RebindToUnsigned<DF>> bits) {
  (void)df;
  const hn::Rebind<std::uint16_t, DF> dh;
#if HWY_TARGET == HWY_SCALAR
  return hn::TruncateTo(dh, hn::ShiftRight<16>(bits));
#elif HWY_TARGET == HWY_AVX3
  // ConcatOdd() permutes two registers, which takes longer than permuting one.
  HWY_ALIGN static constexpr std::uint16_t kUpper[32] = {1,  3,  5,  7,  9,  11, 13, 15,
                                                         17, 19, 21, 23, 25, 27, 29, 31};
  const __m512i both = _mm512_permutexvar_epi16(_mm512_load_si512(kUpper), bits.raw);
  return hn::Vec<decltype(dh)>{_mm512_castsi512_si256(both)};
#else
  const hn::Twice<decltype(dh)> pairs;
  const auto both = hn::BitCast(pairs, bits);
  return hn::LowerHalf(dh, hn::ConcatOdd(pairs, both, both));
#endif
}

/// In integers: a carry out of the fraction goes into the exponent, as it should, up to infinity.
/// (The CPU's own instruction would flush subnormals.)
template <class DU>
HWY_INLINE hn::Vec<DU> RoundUpperHalves(DU du, hn::Vec<DU> bits) {
  const auto is_odd = hn::TestBit(bits, hn::Set(du, 0x10000u));
  return hn::Add(bits, hn::IfThenElse(is_odd, hn::Set(du, 0x8000u), hn::Set(du, 0x7FFFu)));
}

/// The nearest element. NaN, which the carry could change, becomes quiet and keeps the upper bits
/// of its payload.
template <class DF>
HWY_INLINE hn::Vec<hn::Rebind<std::uint16_t, DF>> ToNearest(DF df, BF16 format, hn::Vec<DF> value) {
  const hn::RebindToUnsigned<DF> du;
  const auto bits = hn::BitCast(du, value);
  const auto rounded = RoundUpperHalves(du, bits);
  if (HWY_LIKELY(StaysFinite(df, format, value))) return UpperHalves(df, rounded);
  const auto is_nan = hn::RebindMask(du, hn::IsNaN(value));
  const auto quiet = hn::Or(bits, hn::Set(du, 0x400000u));
  return UpperHalves(df, hn::IfThenElse(is_nan, quiet, rounded));
}
template <class DF>
HWY_INLINE hn::Vec<hn::Rebind<std::uint16_t, DF>> ToNearest(DF df, F16 /*format*/,
                                                            hn::Vec<DF> value) {
  return ToHalf(df, value);
}
template <class DF>
HWY_INLINE hn::Vec<DF> ToNearest(DF /*df*/, F32 /*format*/, hn::Vec<DF> value) {
  return value;
}

/// ToNearest() where the magnitude is at most kLargest; elsewhere anything.
template <class DF, class Format>
HWY_INLINE auto BoundedToNearest(DF df, Format format, hn::Vec<DF> value) {
  return ToNearest(df, format, value);
}
template <class DF>
HWY_INLINE auto BoundedToNearest(DF df, BF16 /*format*/, hn::Vec<DF> value) {
  const hn::RebindToUnsigned<DF> du;
  return UpperHalves(df, RoundUpperHalves(du, hn::BitCast(du, value)));
}

/// Lanes that are finite and whose nearest element is infinite.
template <class DF, class Format>
HWY_INLINE std::size_t CountOverflow(DF df, Format format, hn::Vec<DF> value) {
  if (HWY_LIKELY(StaysFinite(df, format, value))) return 0;
  const auto magnitude = hn::Abs(value);
  const auto is_big = hn::Ge(magnitude, hn::Set(df, Format::kOverflow));
  return hn::CountTrue(df, hn::And(is_big, hn::Lt(magnitude, hn::Inf(df))));
}
template <class DF>
HWY_INLINE std::size_t CountOverflow(DF /*df*/, F32 /*format*/, hn::Vec<DF> /*value*/) {
  return 0;
}

/// Magnitudes below 2^-14 as halves, which there are multiples of 2^-24: the fraction of that unit
/// is compared with 31 random bits.
template <class DF>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<DF>> TinyToRandom(
    DF df, hn::Vec<DF> size, hn::Vec<hn::RebindToUnsigned<DF>> random) {
  const hn::RebindToUnsigned<DF> du;
  const hn::RebindToSigned<DF> di;
  // What is below 2^-31 of a unit could never round up: as +0 it stays off float subnormals.
  const auto is_dust = hn::Lt(size, hn::Set(df, 0x1p-55F));
  const auto units = hn::Mul(hn::IfThenZeroElse(is_dust, size), hn::Set(df, 0x1p24F));
  const auto whole = hn::ConvertTo(di, units);
  const auto fraction = hn::Mul(hn::Sub(units, hn::ConvertTo(df, whole)), hn::Set(df, 0x1p31F));
  const auto draw = hn::BitCast(di, hn::ShiftRight<1>(random));
  const auto up = hn::Lt(draw, hn::ConvertTo(di, fraction));
  return hn::BitCast(du, hn::Sub(whole, hn::VecFromMask(di, up)));
}

/// ToRandom() where the magnitude is below kLargest; elsewhere anything. A normal half drops 13
/// bits of the float: adding 13 random ones below them carries exactly as often as it should.
template <class DF>
HWY_INLINE hn::Vec<hn::Rebind<std::uint16_t, DF>> BoundedToRandom(
    DF df, F16 /*format*/, hn::Vec<DF> value, hn::Vec<hn::RebindToUnsigned<DF>> random) {
  const hn::RebindToUnsigned<DF> du;
  const hn::Rebind<std::uint16_t, DF> dh;
  const auto bits = hn::BitCast(du, value);
  const auto sign = hn::And(bits, hn::Set(du, 0x80000000u));
  const auto magnitude = hn::Xor(bits, sign);
  const auto carried = hn::Add(magnitude, hn::And(random, hn::Set(du, 0x1FFFu)));
  auto drawn = hn::Sub(hn::ShiftRight<13>(carried), hn::Set(du, 0x1C000u));
  const auto size = hn::BitCast(df, magnitude);
  const auto is_tiny = hn::Lt(size, hn::Set(df, 0x1p-14F));
  // Few weights are, so that most vectors can do without.
  if (HWY_UNLIKELY(!hn::AllFalse(df, is_tiny))) {
    const auto tiny = TinyToRandom(df, hn::IfThenElseZero(is_tiny, size), random);
    drawn = hn::IfThenElse(hn::RebindMask(du, is_tiny), tiny, drawn);
  }
  return hn::TruncateTo(dh, hn::Or(drawn, hn::ShiftRight<16>(sign)));
}

/// As for halves; a BF16 drops 16 bits of the float at every magnitude.
template <class DF>
HWY_INLINE hn::Vec<hn::Rebind<std::uint16_t, DF>> BoundedToRandom(
    DF df, BF16 /*format*/, hn::Vec<DF> value, hn::Vec<hn::RebindToUnsigned<DF>> random) {
  const hn::RebindToUnsigned<DF> du;
  const auto low = hn::And(random, hn::Set(du, 0xFFFFu));
  return UpperHalves(df, hn::Add(hn::BitCast(du, value), low));
}

/// One of the two elements around each value: the upper in magnitude with the probability that
/// makes the expectation exact, by 32 evenly distributed bits of `random`. From the largest element
/// on it rounds to nearest, so that no value becomes infinite by chance.
template <class DF, class Format>
HWY_INLINE hn::Vec<hn::Rebind<std::uint16_t, DF>> ToRandom(
    DF df, Format format, hn::Vec<DF> value, hn::Vec<hn::RebindToUnsigned<DF>> random) {
  const hn::RebindToSigned<DF> di;
  const hn::Rebind<std::uint16_t, DF> dh;
  const auto drawn = BoundedToRandom(df, format, value, random);
  const auto is_below = hn::Lt(hn::Abs(value), hn::Set(df, Format::kLargest));
  if (HWY_LIKELY(hn::AllTrue(df, is_below))) return drawn;
  const auto ones = hn::IfThenElseZero(hn::RebindMask(di, is_below), hn::Set(di, 0xFFFF));
  const auto keep = hn::DemoteTo(dh, ones);
  return hn::Or(hn::And(keep, drawn), hn::AndNot(keep, ToNearest(df, format, value)));
}

}  // namespace outboard::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // OUTBOARD_SIMD_FORMATS_INL_HPP_
