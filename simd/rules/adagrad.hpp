// SPDX-License-Identifier: Apache-2.0
/// Adagrad's scalars. State: sum (of squares). Formula and thresholds: docs/numerics.md.
#pragma once

#include <cstdint>

namespace outboard::simd {

struct UpdateShard;
struct UpdateOptions;

/// Per-step scalars, built in double and rounded once.
struct AdagradScalars {
  float step_size = 0.0F;  ///< lr / (1 + (t - 1) * lr_decay)
  float eps = 0.0F;
  float weight_decay = 0.0F;  ///< times p, added to the gradient
  float coeff = 0.0F;         ///< clip / (loss_scale * accumulation)
};

/// As update() (simd/update.hpp), of this rule.
std::uint64_t update_rule(const UpdateShard& shard, const AdagradScalars& scalars,
                          const UpdateOptions& options) noexcept;

}  // namespace outboard::simd
