// SPDX-License-Identifier: Apache-2.0
#include "simd/rules/lamb.hpp"

#include "simd/highway_targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/rules/lamb.cpp"
#include "hwy/foreach_target.h"

#include "hwy/highway.h"

#include "simd/rules/lamb-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace outboard::simd::HWY_NAMESPACE {

inline std::uint64_t UpdateLamb(const UpdateShard& shard, const LambScalars& scalars,
                                const UpdateOptions& options) {
  return Update<LambRule>(shard, scalars, options);
}

}  // namespace outboard::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "simd/dispatch.hpp"

namespace outboard::simd {

HWY_EXPORT(UpdateLamb);
HWY_EXPORT(LambMoments);

std::uint64_t update_rule(const UpdateShard& shard, const LambScalars& scalars,
                          const UpdateOptions& options) noexcept {
  return OUTBOARD_SIMD_DISPATCH(UpdateLamb)(shard, scalars, options);
}

void lamb_moments(const UpdateShard& shard, const LambScalars& scalars,
                  std::span<BlockNorms> norms) noexcept {
  OUTBOARD_SIMD_DISPATCH(LambMoments)(shard, scalars, norms);
}

}  // namespace outboard::simd
#endif  // HWY_ONCE
