// SPDX-License-Identifier: Apache-2.0
#include "schedule.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace gpt {

double LearningRate::at(std::uint64_t update) const {
  if (update < warmup) return peak * static_cast<double>(update) / static_cast<double>(warmup);
  if (warmup >= steps) return peak;
  const double done =
      static_cast<double>(std::min(update, steps) - warmup) / static_cast<double>(steps - warmup);
  return least + (peak - least) * 0.5 * (1.0 + std::cos(std::numbers::pi * done));
}

}  // namespace gpt
