// SPDX-License-Identifier: Apache-2.0
/// AdamW on FP32 state, FP16 or FP32 gradient in, FP16 weight out, in one pass over memory.
/// Formula, evaluation order and subnormal thresholds: docs/numerics.md.
#pragma once

#include <cstdint>
#include <span>

namespace outboard::simd {

/// Per-step scalars, built in double and rounded once (optim/adamw_scalars.hpp).
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

/// All spans equally long, any length and element alignment. `weight_fp16` may be the very memory
/// of `grad_fp16` (each element is read before it is written); any other overlap is not allowed.
struct AdamWShard {
  std::span<const std::uint16_t> grad_fp16;  ///< IEEE binary16 bits; empty if `grad_fp32` is given
  std::span<float> param;                    ///< FP32 master weight
  std::span<float> exp_avg;
  std::span<float> exp_avg_sq;
  std::span<std::uint16_t> weight_fp16;   ///< out
  std::span<const float> grad_fp32 = {};  ///< in place of `grad_fp16`; overlaps nothing
};

/// Updates the shard. The result for element i depends on its own inputs only.
/// @return how many finite masters became infinite as FP16 weights.
std::uint64_t adamw_step(const AdamWShard& shard, const AdamWScalars& scalars) noexcept;

}  // namespace outboard::simd
