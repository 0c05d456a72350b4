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

#include "simd/formats-inl.hpp"

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

/// One vector of a row, squared. The square of a half is exact as a float (22 bits), so multiplying
/// before widening gives the bits of squaring in double; that of a BF16 could leave a float's
/// range.
template <class DD>
HWY_INLINE hn::Vec<DD> SquareRow(DD dd, F16 format, const std::uint16_t* row) {
  const auto value = LoadElements(hn::Rebind<float, DD>(), format, row);
  return hn::PromoteTo(dd, hn::Mul(value, value));
}
template <class DD, class Format>
HWY_INLINE hn::Vec<DD> SquareRow(DD dd, Format format, const typename Format::Bits* row) {
  const auto value = hn::PromoteTo(dd, LoadElements(hn::Rebind<float, DD>(), format, row));
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
template <class Format>
inline double SumRows(const typename Format::Bits* elements, std::size_t rows) {
  const hn::CappedTag<double, kReduceLanes / 4> dd;
  const std::size_t lanes = hn::Lanes(dd);
  HWY_ALIGN double lane[kReduceLanes];
  for (std::size_t first = 0; first < kReduceLanes; first += 4 * lanes) {
    auto sum0 = hn::Zero(dd);
    auto sum1 = hn::Zero(dd);
    auto sum2 = hn::Zero(dd);
    auto sum3 = hn::Zero(dd);
    for (std::size_t row = 0; row < rows; ++row) {
      const auto* at = elements + row * kReduceLanes + first;
      sum0 = hn::Add(sum0, SquareRow(dd, Format(), at));
      sum1 = hn::Add(sum1, SquareRow(dd, Format(), at + lanes));
      sum2 = hn::Add(sum2, SquareRow(dd, Format(), at + 2 * lanes));
      sum3 = hn::Add(sum3, SquareRow(dd, Format(), at + 3 * lanes));
    }
    hn::Store(sum0, dd, lane + first);
    hn::Store(sum1, dd, lane + first + lanes);
    hn::Store(sum2, dd, lane + first + 2 * lanes);
    hn::Store(sum3, dd, lane + first + 3 * lanes);
  }
  return FoldLanes(lane);
}

HWY_INLINE std::uint16_t RawBits(std::uint16_t bits) {
  return bits;
}
HWY_INLINE std::uint32_t RawBits(float value) {
  return std::bit_cast<std::uint32_t>(value);
}
/// Which of an element's raw bits are its exponent.
template <class Format>
inline constexpr std::uint16_t kExponent = 0x7C00;
template <>
inline constexpr std::uint16_t kExponent<BF16> = 0x7F80;
template <>
inline constexpr std::uint32_t kExponent<F32> = 0x7F800000;

template <class Format>
HWY_INLINE bool IsNonFinite(typename Format::Bits element) {
  return (RawBits(element) & kExponent<Format>) == kExponent<Format>;
}
/// Of a non-finite element.
template <class Format>
HWY_INLINE bool IsNaN(typename Format::Bits element) {
  constexpr std::uint32_t kBits = kExponent<Format>;
  constexpr std::uint32_t kFraction = (kBits & (~kBits + 1U)) - 1U;
  return (RawBits(element) & kFraction) != 0;
}

template <class Format>
inline bool HasNonFinite(std::span<const typename Format::Bits> block) {
  const hn::ScalableTag<typename Format::Bits> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  const std::size_t lanes = hn::Lanes(du);
  const auto exponent = hn::Set(du, kExponent<Format>);
  auto found = hn::MaskFromVec(hn::Zero(du));
  std::size_t i = 0;
  for (; i + lanes <= block.size(); i += lanes) {
    const auto bits = hn::And(hn::BitCast(du, hn::LoadU(d, block.data() + i)), exponent);
    found = hn::Or(found, hn::Eq(bits, exponent));
  }
  if (!hn::AllFalse(du, found)) return true;
  // No std::any_of: the standard library's code is not made for this target, and may not inline it.
  for (; i < block.size(); ++i) {
    if (IsNonFinite<Format>(block[i])) return true;
  }
  return false;
}

/// At most one block. Rows of zeros that would fill it up add +0 to sums that are never -0, so only
/// the last row is padded.
template <class Format>
inline double SumBlock(std::span<const typename Format::Bits> block, bool has_non_finite) {
  using Bits = typename Format::Bits;
  if (!has_non_finite && block.size() % kReduceLanes == 0) {
    return SumRows<Format>(block.data(), block.size() / kReduceLanes);
  }
  HWY_ALIGN Bits padded[kReduceBlockElems];
  const std::size_t rows = (block.size() + kReduceLanes - 1) / kReduceLanes;
  const auto finite = [has_non_finite](Bits element) {
    return has_non_finite && IsNonFinite<Format>(element) ? Bits{0} : element;
  };
  const auto* end = std::transform(block.begin(), block.end(), padded, finite);
  std::fill(padded + (end - padded), padded + rows * kReduceLanes, Bits{0});
  return SumRows<Format>(padded, rows);
}

/// Counts into `result` what is not finite in a block that starts at element `first`.
template <class Format>
inline void CountNonFinite(std::span<const typename Format::Bits> block, std::uint64_t first,
                           GradientReduction& result) {
  for (std::size_t i = 0; i < block.size(); ++i) {
    if (!IsNonFinite<Format>(block[i])) continue;
    if (result.non_finite++ > 0) continue;
    result.first_non_finite = first + i;
    result.first_is_nan = IsNaN<Format>(block[i]);
  }
}

template <class Format>
inline GradientReduction ReduceElements(const void* data, std::size_t size) {
  using Bits = typename Format::Bits;
  const std::span<const Bits> grad(static_cast<const Bits*>(data), size);
  GradientReduction result;
  for (std::size_t first = 0; first < size; first += kReduceBlockElems) {
    const auto block = grad.subspan(first, std::min<std::size_t>(kReduceBlockElems, size - first));
    const bool bad = HasNonFinite<Format>(block);
    if (bad) CountNonFinite<Format>(block, first, result);
    result.sum_of_squares += SumBlock<Format>(block, bad);
  }
  return result;
}

inline GradientReduction ReduceGradient(const ConstElements& grad, std::size_t size) {
  switch (grad.format) {
    case Format::f16:
      return ReduceElements<F16>(grad.data, size);
    case Format::bf16:
      return ReduceElements<BF16>(grad.data, size);
    case Format::f32:
      break;
  }
  return ReduceElements<F32>(grad.data, size);
}

}  // namespace outboard::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // OUTBOARD_SIMD_REDUCE_INL_HPP_
