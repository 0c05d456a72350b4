// SPDX-License-Identifier: Apache-2.0
/// Gradient accumulation in FP32: micro-batches are added one after the other.
#pragma once

#include <span>

#include "simd/format.hpp"

namespace outboard::simd {

/// As many gradients as sums; any length and element alignment; they do not overlap.
struct AccumulateShard {
  ConstElements grad;
  std::span<float> sum;
  bool first = false;  ///< `sum` becomes the gradient, whatever it held
};

/// sum = float(gradient) if `first`, else sum + float(gradient). Element by element.
void accumulate(const AccumulateShard& shard) noexcept;

}  // namespace outboard::simd
