// SPDX-License-Identifier: Apache-2.0
/// Repeated measurements and what is said of them.
#pragma once

#include <span>
#include <vector>

namespace outboard::update_bench {

struct Summary {
  double median = 0.0;
  double low = 0.0;   ///< lower quartile
  double high = 0.0;  ///< upper quartile
  double min = 0.0;
  double max = 0.0;
};

/// Quantiles interpolated between neighbours. `values` is not empty.
[[nodiscard]] Summary summarize(std::vector<double> values);

/// Of each repeat by itself, so that what slows a whole repeat down falls out.
[[nodiscard]] std::vector<double> ratios(std::span<const double> numerators,
                                         std::span<const double> denominators);

}  // namespace outboard::update_bench
