// SPDX-License-Identifier: Apache-2.0
/// LAMB, in two phases with a norm over the whole parameter between. State: exp_avg, exp_avg_sq.
/// Formula and thresholds: docs/numerics.md.
#pragma once

#include <cstdint>
#include <span>

namespace outboard::simd {

struct UpdateShard;
struct UpdateOptions;

/// Per-step scalars, built in double and rounded once.
struct LambScalars {
  float beta1 = 0.0F;
  float one_minus_beta1 = 0.0F;
  float beta2 = 0.0F;
  float one_minus_beta2 = 0.0F;
  float eps = 0.0F;
  float inv_bias1 = 0.0F;         ///< 1 / (1 - beta1^t)
  float inv_sqrt_bias2 = 0.0F;    ///< 1 / sqrt(1 - beta2^t)
  float weight_decay = 0.0F;      ///< times p, added to the update
  float coeff = 0.0F;             ///< clip / (loss_scale * accumulation); first phase only
  float exp_avg_sq_floor = 0.0F;  ///< FLT_MIN / beta2: a smaller old exp_avg_sq is read as +0
  float grad_sq_floor = 0.0F;     ///< sqrt(FLT_MIN / (1 - beta2)): a smaller |g| is +0 in that line
  float lr_trust = 0.0F;          ///< lr * trust ratio; second phase only
};

/// Sums of squares over one block of kReduceBlockElems elements (simd/reduce.hpp, same tree).
struct BlockNorms {
  double param = 0.0;   ///< of the old master weights
  double update = 0.0;  ///< of the update before learning rate and trust ratio
};

/// First phase: new moments, and the norms from which the trust ratio is made. Reads `grad` and
/// `param`, reads and writes `state`; leaves the rest of the shard alone. Blocks are counted from
/// the start of the shard, which must be a multiple of kReduceBlockElems elements into the
/// parameter; `norms` has one entry for each, the last block may be shorter.
void lamb_moments(const UpdateShard& shard, const LambScalars& scalars,
                  std::span<BlockNorms> norms) noexcept;

/// Second phase: as update() (simd/update.hpp), from the moments that the first one left. Reads
/// `param` and `state`; writes `param`, `weight` and `ema`. `grad` is not read.
std::uint64_t update_rule(const UpdateShard& shard, const LambScalars& scalars,
                          const UpdateOptions& options) noexcept;

}  // namespace outboard::simd
