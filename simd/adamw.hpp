// SPDX-License-Identifier: Apache-2.0
/// AdamW on FP16 weights: update() of simd/update.hpp with its usual formats.
#pragma once

#include <cstdint>
#include <span>

#include "simd/update.hpp"

namespace outboard::simd {

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
inline std::uint64_t adamw_step(const AdamWShard& shard, const AdamWScalars& scalars) noexcept {
  const ConstElements grad = shard.grad_fp32.empty()
                                 ? ConstElements{shard.grad_fp16.data(), Format::f16}
                                 : ConstElements{shard.grad_fp32.data(), Format::f32};
  return update_rule({.grad = grad,
                      .weight = {shard.weight_fp16.data(), Format::f16},
                      .param = shard.param,
                      .state = {shard.exp_avg, shard.exp_avg_sq}},
                     scalars, {});
}

}  // namespace outboard::simd
