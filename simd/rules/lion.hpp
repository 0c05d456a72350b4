// SPDX-License-Identifier: Apache-2.0
/// Lion's scalars. State: exp_avg. Formula and thresholds: docs/numerics.md.
#pragma once

#include <cstdint>

namespace outboard::simd {

struct UpdateShard;
struct UpdateOptions;

/// Per-step scalars, built in double and rounded once.
struct LionScalars {
  float beta1 = 0.0F;  ///< of the direction
  float one_minus_beta1 = 0.0F;
  float beta2 = 0.0F;  ///< of the momentum that is kept
  float one_minus_beta2 = 0.0F;
  float lr = 0.0F;
  float lr_wd = 0.0F;  ///< lr * weight_decay
  float coeff = 0.0F;  ///< clip / (loss_scale * accumulation)
};

/// As update() (simd/update.hpp), of this rule.
std::uint64_t update_rule(const UpdateShard& shard, const LionScalars& scalars,
                          const UpdateOptions& options) noexcept;

}  // namespace outboard::simd
