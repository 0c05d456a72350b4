// SPDX-License-Identifier: Apache-2.0
#include "simd/digest.hpp"

#include "simd/highway_targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/digest.cpp"
#include "hwy/foreach_target.h"

#include "hwy/highway.h"

#include "simd/digest-inl.hpp"

#if HWY_ONCE
#include "simd/dispatch.hpp"

namespace outboard::simd {

HWY_EXPORT(DigestState);

std::uint64_t digest_state(const DigestShard& shard) noexcept {
  return OUTBOARD_SIMD_DISPATCH(DigestState)(shard);
}

}  // namespace outboard::simd
#endif  // HWY_ONCE
