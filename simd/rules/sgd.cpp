// SPDX-License-Identifier: Apache-2.0
#include "simd/rules/sgd.hpp"

#include "simd/highway_targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/rules/sgd.cpp"
#include "hwy/foreach_target.h"

#include "hwy/highway.h"

#include "simd/rules/sgd-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace outboard::simd::HWY_NAMESPACE {

inline std::uint64_t UpdateSgd(const UpdateShard& shard, const SgdScalars& scalars,
                               const UpdateOptions& options) {
  if (scalars.momentum == 0.0F) return Update<SgdRule>(shard, scalars, options);
  return Update<SgdMomentumRule>(shard, scalars, options);
}

}  // namespace outboard::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "simd/dispatch.hpp"

namespace outboard::simd {

HWY_EXPORT(UpdateSgd);

std::uint64_t update_rule(const UpdateShard& shard, const SgdScalars& scalars,
                          const UpdateOptions& options) noexcept {
  return OUTBOARD_SIMD_DISPATCH(UpdateSgd)(shard, scalars, options);
}

}  // namespace outboard::simd
#endif  // HWY_ONCE
