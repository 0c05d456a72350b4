// SPDX-License-Identifier: Apache-2.0
/// LAMB between its two phases: from the norms of one parameter's blocks to the one scalar that the
/// second phase needs.
#pragma once

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <span>

#include "simd/rules/lamb.hpp"

// For a device's compiler too.
#if defined(__CUDACC__)
#define OUTBOARD_SIMD_ANYWHERE __host__ __device__
#else
#define OUTBOARD_SIMD_ANYWHERE
#endif

namespace outboard::simd {

/// lr * ||param|| / ||update||, and lr if one of the norms is 0; at most the largest float, never
/// -0. Block sums are added in order, in double; rounded once.
[[nodiscard]] OUTBOARD_SIMD_ANYWHERE inline float lamb_lr_trust(
    double lr, std::span<const BlockNorms> norms) noexcept {
  BlockNorms sum;
  for (const BlockNorms& block : norms) {
    sum.param += block.param;
    sum.update += block.update;
  }
  const bool both = sum.param > 0.0 && sum.update > 0.0;
  const double trust = both ? std::sqrt(sum.param) / std::sqrt(sum.update) : 1.0;
  return static_cast<float>(std::min(lr * trust, static_cast<double>(FLT_MAX))) + 0.0F;
}

}  // namespace outboard::simd
