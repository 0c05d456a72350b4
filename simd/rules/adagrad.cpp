// SPDX-License-Identifier: Apache-2.0
#include "simd/rules/adagrad.hpp"

#include "simd/highway_targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/rules/adagrad.cpp"
#include "hwy/foreach_target.h"

#include "hwy/highway.h"

#include "simd/rules/adagrad-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace outboard::simd::HWY_NAMESPACE {

inline std::uint64_t UpdateAdagrad(const UpdateShard& shard, const AdagradScalars& scalars,
                                   const UpdateOptions& options) {
  return Update<AdagradRule>(shard, scalars, options);
}

}  // namespace outboard::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "simd/dispatch.hpp"

namespace outboard::simd {

HWY_EXPORT(UpdateAdagrad);

std::uint64_t update_rule(const UpdateShard& shard, const AdagradScalars& scalars,
                          const UpdateOptions& options) noexcept {
  return OUTBOARD_SIMD_DISPATCH(UpdateAdagrad)(shard, scalars, options);
}

}  // namespace outboard::simd
#endif  // HWY_ONCE
