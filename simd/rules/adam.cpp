// SPDX-License-Identifier: Apache-2.0
#include "simd/rules/adam.hpp"

#include "simd/highway_targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/rules/adam.cpp"
#include "hwy/foreach_target.h"

#include "hwy/highway.h"

#include "simd/rules/adam-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace outboard::simd::HWY_NAMESPACE {

inline std::uint64_t UpdateAdam(const UpdateShard& shard, const AdamScalars& scalars,
                                const UpdateOptions& options) {
  return Update<AdamRule>(shard, scalars, options);
}

}  // namespace outboard::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "simd/dispatch.hpp"

namespace outboard::simd {

HWY_EXPORT(UpdateAdam);

std::uint64_t update_rule(const UpdateShard& shard, const AdamScalars& scalars,
                          const UpdateOptions& options) noexcept {
  return OUTBOARD_SIMD_DISPATCH(UpdateAdam)(shard, scalars, options);
}

}  // namespace outboard::simd
#endif  // HWY_ONCE
