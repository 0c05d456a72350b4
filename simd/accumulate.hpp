// SPDX-License-Identifier: Apache-2.0
/// Gradient accumulation in FP32: micro-batches are added one after the other.
#pragma once

#include <cstdint>
#include <span>

namespace outboard::simd {

/// Spans equally long, any length and element alignment; they do not overlap.
struct AccumulateShard {
  std::span<const std::uint16_t> grad_fp16;  ///< IEEE binary16 bits
  std::span<float> sum;
  bool first = false;  ///< `sum` becomes the gradient, whatever it held
};

/// sum = float(gradient) if `first`, else sum + float(gradient). Element by element.
void accumulate(const AccumulateShard& shard) noexcept;

}  // namespace outboard::simd
