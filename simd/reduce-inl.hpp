// SPDX-License-Identifier: Apache-2.0
/// The fixed tree of sums of squares, and the search for non-finite elements.
#include "simd/highway_targets.hpp"

#include <algorithm>
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

/// 64 lanes to one, by halves.
inline double FoldLanes(double* lane) {
  for (std::size_t half = kReduceLanes / 2; half > 0; half /= 2) {
    for (std::size_t l = 0; l < half; ++l) lane[l] += lane[l + half];
  }
  return lane[0];
}

/// Sum of squares of `rows` rows of 64 finite elements: a few of the 64 lanes at a time, so that
/// the sums stay in registers on every target; the rows come from the first-level cache.
inline double SumRows(const std::uint16_t* elements, std::size_t rows) {
  const hn::CappedTag<double, kReduceLanes / 4> dd;
  const std::size_t lanes = hn::Lanes(dd);
  HWY_ALIGN double lane[kReduceLanes];
  for (std::size_t first = 0; first < kReduceLanes; first += 4 * lanes) {
    auto sum0 = hn::Zero(dd);
    auto sum1 = hn::Zero(dd);
    auto sum2 = hn::Zero(dd);
    auto sum3 = hn::Zero(dd);
    for (std::size_t row = 0; row < rows; ++row) {
      const std::uint16_t* at = elements + row * kReduceLanes + first;
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

inline bool IsNonFinite(std::uint16_t half) {
  return (half & 0x7C00U) == 0x7C00U;
}

inline bool HasNonFinite(std::span<const std::uint16_t> block) {
  const hn::ScalableTag<std::uint16_t> dh;
  const std::size_t lanes = hn::Lanes(dh);
  const auto exponent = hn::Set(dh, std::uint16_t{0x7C00});
  auto found = hn::MaskFromVec(hn::Zero(dh));
  std::size_t i = 0;
  for (; i + lanes <= block.size(); i += lanes) {
    const auto bits = hn::And(hn::LoadU(dh, block.data() + i), exponent);
    found = hn::Or(found, hn::Eq(bits, exponent));
  }
  if (!hn::AllFalse(dh, found)) return true;
  return std::any_of(block.begin() + static_cast<std::ptrdiff_t>(i), block.end(), IsNonFinite);
}

/// At most one block. Rows of zeros that would fill it up add +0 to sums that are never -0, so only
/// the last row is padded.
inline double SumBlock(std::span<const std::uint16_t> block, bool has_non_finite) {
  if (!has_non_finite && block.size() % kReduceLanes == 0) {
    return SumRows(block.data(), block.size() / kReduceLanes);
  }
  HWY_ALIGN std::uint16_t padded[kReduceBlockElems];
  const std::size_t rows = (block.size() + kReduceLanes - 1) / kReduceLanes;
  const auto* end = std::transform(block.begin(), block.end(), padded, [](std::uint16_t half) {
    return IsNonFinite(half) ? std::uint16_t{0} : half;
  });
  std::fill(padded + (end - padded), padded + rows * kReduceLanes, std::uint16_t{0});
  return SumRows(padded, rows);
}

/// Counts into `result` what is not finite in a block that starts at element `first`.
inline void CountNonFinite(std::span<const std::uint16_t> block, std::uint64_t first,
                           GradientReduction& result) {
  for (std::size_t i = 0; i < block.size(); ++i) {
    if (!IsNonFinite(block[i])) continue;
    if (result.non_finite++ > 0) continue;
    result.first_non_finite = first + i;
    result.first_is_nan = (block[i] & 0x03FFU) != 0;
  }
}

inline double BlockSumOfSquares(std::span<const std::uint16_t> block) {
  return SumBlock(block, HasNonFinite(block));
}

inline GradientReduction ReduceGradient(std::span<const std::uint16_t> grad) {
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

}  // namespace outboard::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // OUTBOARD_SIMD_REDUCE_INL_HPP_
