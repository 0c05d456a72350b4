// SPDX-License-Identifier: Apache-2.0
/// AdamW's scalars. State: exp_avg, exp_avg_sq. Formula and thresholds: docs/numerics.md.
#pragma once

#include <cstdint>

namespace outboard::simd {

struct UpdateShard;
struct UpdateOptions;

/// Per-step scalars, built in double and rounded once.
struct AdamWScalars {
  float beta1 = 0.0F;
  float one_minus_beta1 = 0.0F;
  float beta2 = 0.0F;
  float one_minus_beta2 = 0.0F;
  float eps = 0.0F;
  float step_size = 0.0F;         ///< lr / (1 - beta1^t)
  float lr_wd = 0.0F;             ///< lr * weight_decay
  float inv_sqrt_bias2 = 0.0F;    ///< 1 / sqrt(1 - beta2^t)
  float coeff = 0.0F;             ///< clip / (loss_scale * accumulation)
  float exp_avg_sq_floor = 0.0F;  ///< FLT_MIN / beta2: a smaller old exp_avg_sq is read as +0
  float grad_sq_floor = 0.0F;     ///< sqrt(FLT_MIN / (1 - beta2)): a smaller |g| is +0 in that line
};

/// As update() (simd/update.hpp), of this rule.
std::uint64_t update_rule(const UpdateShard& shard, const AdamWScalars& scalars,
                          const UpdateOptions& options) noexcept;

}  // namespace outboard::simd
