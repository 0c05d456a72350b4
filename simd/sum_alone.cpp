// SPDX-License-Identifier: Apache-2.0
#include "simd/sum_alone.hpp"

#include "simd/highway_targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/sum_alone.cpp"
#include "hwy/foreach_target.h"

#include "hwy/highway.h"

#include "simd/reduce-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace outboard::simd::HWY_NAMESPACE {

template <class Format>
inline double SumFinite(const void* data, std::size_t size) {
  using Bits = typename Format::Bits;
  const std::span<const Bits> grad(static_cast<const Bits*>(data), size);
  double sum = 0.0;
  for (std::size_t first = 0; first < size; first += kReduceBlockElems) {
    const auto block = grad.subspan(first, std::min<std::size_t>(kReduceBlockElems, size - first));
    sum += SumBlock<Format>(block, false);
  }
  return sum;
}

inline double SumOfFiniteSquares(const ConstElements& grad, std::size_t size) {
  switch (grad.format) {
    case Format::f16:
      return SumFinite<F16>(grad.data, size);
    case Format::bf16:
      return SumFinite<BF16>(grad.data, size);
    case Format::f32:
      break;
  }
  return SumFinite<F32>(grad.data, size);
}

}  // namespace outboard::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "simd/dispatch.hpp"

namespace outboard::simd {

HWY_EXPORT(SumOfFiniteSquares);

double sum_of_finite_squares(const ConstElements& grad, std::size_t size) noexcept {
  return OUTBOARD_SIMD_DISPATCH(SumOfFiniteSquares)(grad, size);
}

}  // namespace outboard::simd
#endif  // HWY_ONCE
