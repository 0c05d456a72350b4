// SPDX-License-Identifier: Apache-2.0
#include "update_bench/series.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace outboard::update_bench {

Summary summarize(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto quantile = [&](double share) {
    const double place = share * static_cast<double>(values.size() - 1);
    const auto below = static_cast<std::size_t>(place);
    const std::size_t above = std::min(below + 1, values.size() - 1);
    return std::lerp(values[below], values[above], place - static_cast<double>(below));
  };
  return {quantile(0.5), quantile(0.25), quantile(0.75), values.front(), values.back()};
}

std::vector<double> ratios(std::span<const double> numerators,
                           std::span<const double> denominators) {
  std::vector<double> result;
  const std::size_t count = std::min(numerators.size(), denominators.size());
  for (std::size_t i = 0; i < count; ++i) result.push_back(numerators[i] / denominators[i]);
  return result;
}

}  // namespace outboard::update_bench
