// SPDX-License-Identifier: Apache-2.0
/// The scalars of SGD with momentum, dampening, Nesterov and L2 decay. State: momentum, or none at
/// all if `momentum` is 0. Formula and thresholds: docs/numerics.md.
#pragma once

#include <cstdint>

namespace outboard::simd {

struct UpdateShard;
struct UpdateOptions;

/// Per-step scalars, built in double and rounded once.
struct SgdScalars {
  float lr = 0.0F;
  float momentum = 0.0F;             ///< 0: no state is read or written
  float one_minus_dampening = 1.0F;  ///< 1 - dampening
  float weight_decay = 0.0F;         ///< times p, added to the gradient
  float coeff = 0.0F;                ///< clip / (loss_scale * accumulation)
  bool first = false;                ///< t == 1: the momentum becomes the gradient itself
  bool nesterov = false;
};

/// As update() (simd/update.hpp), of this rule.
std::uint64_t update_rule(const UpdateShard& shard, const SgdScalars& scalars,
                          const UpdateOptions& options) noexcept;

}  // namespace outboard::simd
