// SPDX-License-Identifier: Apache-2.0
#include "simd/adamw.hpp"

#include "simd/highway_targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/adamw.cpp"
#include "hwy/foreach_target.h"

#include "hwy/highway.h"

#include "simd/adamw-inl.hpp"

#if HWY_ONCE
#include "simd/dispatch.hpp"

namespace outboard::simd {

HWY_EXPORT(AdamWStep);

std::uint64_t adamw_step(const AdamWShard& shard, const AdamWScalars& scalars) noexcept {
  return OUTBOARD_SIMD_DISPATCH(AdamWStep)(shard, scalars);
}

}  // namespace outboard::simd
#endif  // HWY_ONCE
