// SPDX-License-Identifier: Apache-2.0
/// One step of one rule on FP32 state: gradient in, 16-bit or FP32 weight out, in one pass over
/// memory. Formulas, evaluation order and subnormal thresholds: docs/numerics.md.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "simd/format.hpp"
#include "simd/rules.hpp"

namespace outboard::simd {

/// All of `param.size()` elements; any length, any element alignment. The weight may be the very
/// memory of the gradient if both formats have one size (each element is read before it is
/// written); nothing else overlaps.
struct UpdateShard {
  ConstElements grad;
  Elements weight;                        ///< out: the new master, rounded
  std::span<float> param;                 ///< FP32 master weight
  std::array<std::span<float>, 2> state;  ///< the rule's, in its order; what it lacks stays empty
  std::span<float> ema = {};              ///< average of the masters; empty: none
  std::uint64_t first_element = 0;        ///< index in the parameter: stochastic rounding's counter
};

/// Rounds the weight up or down at random, in proportion, so that its expectation is the master.
struct StochasticRounding {
  bool on = false;
  std::uint64_t key = 0;  ///< of (seed, parameter, t): never the same for two steps
};

struct UpdateOptions {
  StochasticRounding rounding = {};
  float ema_one_minus_decay = 0.0F;  ///< 1 - decay of `ema`; 0: `ema` stays as it is
};

/// Updates the shard. Element i's result depends on its own inputs, the scalars and its index in
/// the parameter only, and is the same bits on every target, provided that no scalar is -0, or
/// infinite but for a floor. LambScalars: the second phase.
/// @return how many finite masters became infinite as 16-bit weights.
std::uint64_t update(const UpdateShard& shard, const RuleScalars& scalars,
                     const UpdateOptions& options = {}) noexcept;

}  // namespace outboard::simd
