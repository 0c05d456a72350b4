// SPDX-License-Identifier: Apache-2.0
#include "simd/rules/adamw.hpp"

#include "simd/highway_targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/rules/adamw.cpp"
#include "hwy/foreach_target.h"

#include "hwy/highway.h"

#include "simd/rules/adamw-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace outboard::simd::HWY_NAMESPACE {

inline std::uint64_t UpdateAdamW(const UpdateShard& shard, const AdamWScalars& scalars,
                                 const UpdateOptions& options) {
  return Update<AdamWRule>(shard, scalars, options);
}

}  // namespace outboard::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "simd/dispatch.hpp"

namespace outboard::simd {

HWY_EXPORT(UpdateAdamW);

std::uint64_t update_rule(const UpdateShard& shard, const AdamWScalars& scalars,
                          const UpdateOptions& options) noexcept {
  return OUTBOARD_SIMD_DISPATCH(UpdateAdamW)(shard, scalars, options);
}

}  // namespace outboard::simd
#endif  // HWY_ONCE
