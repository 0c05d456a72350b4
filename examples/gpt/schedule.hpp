// SPDX-License-Identifier: Apache-2.0
/// The learning rate over time.
#pragma once

#include <cstdint>

namespace gpt {

struct LearningRate {
  double peak = 1e-3, least = 1e-4;
  std::uint64_t warmup = 0;  ///< updates that rise in equal parts to the peak
  std::uint64_t steps = 1;   ///< half a cosine from the peak at `warmup` down to `least` here

  /// Of the `update`-th update, counted from 1: a skipped step is none.
  [[nodiscard]] double at(std::uint64_t update) const;
};

}  // namespace gpt
