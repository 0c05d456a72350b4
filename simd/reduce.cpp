// SPDX-License-Identifier: Apache-2.0
#include "simd/reduce.hpp"

#include "simd/highway_targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/reduce.cpp"
#include "hwy/foreach_target.h"

#include "hwy/highway.h"

#include "simd/reduce-inl.hpp"

#if HWY_ONCE
#include "simd/dispatch.hpp"

namespace outboard::simd {

HWY_EXPORT(ReduceGradient);

GradientReduction reduce_gradient(const ConstElements& grad, std::size_t size) noexcept {
  return OUTBOARD_SIMD_DISPATCH(ReduceGradient)(grad, size);
}

}  // namespace outboard::simd
#endif  // HWY_ONCE
