// SPDX-License-Identifier: Apache-2.0
/// The fixed tree of sums of squares, and the search for non-finite elements.
#include "simd/highway_targets.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "simd/reduce.hpp"

#include "hwy/highway.h"

#include "simd/fp16-inl.hpp"

#if defined(OUTBOARD_SIMD_REDUCE_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef OUTBOARD_SIMD_REDUCE_INL_HPP_
#undef OUTBOARD_SIMD_REDUCE_INL_HPP_
#else
#define OUTBOARD_SIMD_REDUCE_INL_HPP_
#endif

HWY_BEFORE_NAMESPACE();
namespace outboard::simd::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline constexpr std::size_t kReduceLanes = 64;

/// Lanes `lane` and up of one row, squared. The square of a half is exact as a float (22 bits), so
/// multiplying before widening gives the bits of squaring in double.
template <class DD>
HWY_INLINE hn::Vec<DD> SquareRow(DD dd, const std::uint16_t* row) {
  const hn::Rebind<float, DD> df;
  const hn::Rebind<std::uint16_t, DD> dh;
  const auto value = FromHalf(df, hn::LoadU(dh, row));
  return hn::PromoteTo(dd, hn::Mul(value, value));
}

template <class DD>
HWY_INLINE hn::Vec<DD> SquareRow(DD dd, const float* row) {
  const auto value = hn::PromoteTo(dd, hn::LoadU(hn::Rebind<float, DD>(), row));
  return hn::Mul(value, value);
}

/// 64 lanes to one, by halves.
inline double FoldLanes(double* lane) {
  for (std::size_t half = kReduceLanes / 2; half > 0; half /= 2) {
    for (std::size_t l = 0; l < half; ++l) lane[l] += lane[l + half];
  }
  return lane[0];
}

/// Sum of squares of `rows` rows of 64 finite elements: a few of the 64 lanes at a time, so that
/// the sums stay in registers on every target; the rows come from the first-level cache.
template <class Grad>
inline double SumRows(const Grad* elements, std::size_t rows) {
  const hn::CappedTag<double, kReduceLanes / 4> dd;
  const std::size_t lanes = hn::Lanes(dd);
  HWY_ALIGN double lane[kReduceLanes];
  for (std::size_t first = 0; first < kReduceLanes; first += 4 * lanes) {
    auto sum0 = hn::Zero(dd);
    auto sum1 = hn::Zero(dd);
    auto sum2 = hn::Zero(dd);
    auto sum3 = hn::Zero(dd);
    for (std::size_t row = 0; row < rows; ++row) {
      const Grad* at = elements + row * kReduceLanes + first;
      sum0 = hn::Add(sum0, SquareRow(dd, at));
      sum1 = hn::Add(sum1, SquareRow(dd, at + lanes));
      sum2 = hn::Add(sum2, SquareRow(dd, at + 2 * lanes));
      sum3 = hn::Add(sum3, SquareRow(dd, at + 3 * lanes));
    }
    hn::Store(sum0, dd, lane + first);
    hn::Store(sum1, dd, lane + first + lanes);
    hn::Store(sum2, dd, lane + first + 2 * lanes);
    hn::Store(sum3, dd, lane + first + 3 * lanes);
  }
  return FoldLanes(lane);
}

/// The raw bits of an element and which of them are its exponent.
inline constexpr std::uint16_t kHalfExponent = 0x7C00;
inline constexpr std::uint32_t kFloatExponent = 0x7F800000;
inline std::uint16_t Bits(std::uint16_t half) {
  return half;
}
inline std::uint32_t Bits(float value) {
  return std::bit_cast<std::uint32_t>(value);
}
template <class Grad>
inline constexpr auto kExponent = kHalfExponent;
template <>
inline constexpr auto kExponent<float> = kFloatExponent;

template <class Grad>
inline bool IsNonFinite(Grad value) {
  return (Bits(value) & kExponent<Grad>) == kExponent<Grad>;
}
/// Of a non-finite element.
template <class Grad>
inline bool IsNaN(Grad value) {
  constexpr auto kSign = static_cast<decltype(Bits(Grad{}))>(1) << (8 * sizeof(Grad) - 1);
  return (Bits(value) & ~kSign) > kExponent<Grad>;
}

template <class Grad>
inline bool HasNonFinite(std::span<const Grad> block) {
  const hn::ScalableTag<Grad> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  const std::size_t lanes = hn::Lanes(du);
  const auto exponent = hn::Set(du, kExponent<Grad>);
  auto found = hn::MaskFromVec(hn::Zero(du));
  std::size_t i = 0;
  for (; i + lanes <= block.size(); i += lanes) {
    const auto bits = hn::And(hn::BitCast(du, hn::LoadU(d, block.data() + i)), exponent);
    found = hn::Or(found, hn::Eq(bits, exponent));
  }
  if (!hn::AllFalse(du, found)) return true;
  return std::any_of(block.begin() + static_cast<std::ptrdiff_t>(i), block.end(),
                     IsNonFinite<Grad>);
}

/// At most one block. Rows of zeros that would fill it up add +0 to sums that are never -0, so only
/// the last row is padded.
template <class Grad>
inline double SumBlock(std::span<const Grad> block, bool has_non_finite) {
  if (!has_non_finite && block.size() % kReduceLanes == 0) {
    return SumRows(block.data(), block.size() / kReduceLanes);
  }
  HWY_ALIGN Grad padded[kReduceBlockElems];
  const std::size_t rows = (block.size() + kReduceLanes - 1) / kReduceLanes;
  const auto* end = std::transform(block.begin(), block.end(), padded,
                                   [](Grad value) { return IsNonFinite(value) ? Grad{0} : value; });
  std::fill(padded + (end - padded), padded + rows * kReduceLanes, Grad{0});
  return SumRows(padded, rows);
}

/// Counts into `result` what is not finite in a block that starts at element `first`.
template <class Grad>
inline void CountNonFinite(std::span<const Grad> block, std::uint64_t first,
                           GradientReduction& result) {
  for (std::size_t i = 0; i < block.size(); ++i) {
    if (!IsNonFinite(block[i])) continue;
    if (result.non_finite++ > 0) continue;
    result.first_non_finite = first + i;
    result.first_is_nan = IsNaN(block[i]);
  }
}

inline double BlockSumOfSquares(std::span<const std::uint16_t> block) {
  return SumBlock(block, HasNonFinite(block));
}

template <class Grad>
inline GradientReduction Reduce(std::span<const Grad> grad) {
  GradientReduction result;
  for (std::size_t first = 0; first < grad.size(); first += kReduceBlockElems) {
    const auto block =
        grad.subspan(first, std::min<std::size_t>(kReduceBlockElems, grad.size() - first));
    const bool bad = HasNonFinite(block);
    if (bad) CountNonFinite(block, first, result);
    result.sum_of_squares += SumBlock(block, bad);
  }
  return result;
}

inline GradientReduction ReduceGradientFp16(std::span<const std::uint16_t> grad) {
  return Reduce(grad);
}
inline GradientReduction ReduceGradientFp32(std::span<const float> grad) {
  return Reduce(grad);
}

}  // namespace outboard::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // OUTBOARD_SIMD_REDUCE_INL_HPP_
