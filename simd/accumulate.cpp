// SPDX-License-Identifier: Apache-2.0
#include "simd/accumulate.hpp"

#include "simd/highway_targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/accumulate.cpp"
#include "hwy/foreach_target.h"

#include "hwy/highway.h"

#include "simd/accumulate-inl.hpp"

#if HWY_ONCE
#include "simd/dispatch.hpp"

namespace outboard::simd {

HWY_EXPORT(Accumulate);

void accumulate(const AccumulateShard& shard) noexcept {
  OUTBOARD_SIMD_DISPATCH(Accumulate)(shard);
}

}  // namespace outboard::simd
#endif  // HWY_ONCE
