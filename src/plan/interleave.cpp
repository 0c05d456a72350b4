// SPDX-License-Identifier: Apache-2.0
#include "plan/interleave.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "core/show_number.hpp"
#include "outboard/error.hpp"

namespace outboard::plan {
namespace {

std::vector<double> shares_of(std::span<const double> weights) {
  double total = 0.0;
  for (const double weight : weights) {
    if (!(weight > 0.0) || !std::isfinite(weight)) {
      throw Error(ErrorCode::invalid_argument, "interleave(): a node's rate is " +
                                                   core::show_number(weight) +
                                                   "; each must be positive and finite");
    }
    total += weight;
  }
  if (weights.empty()) {
    throw Error(ErrorCode::invalid_argument, "interleave(): no node; give at least one rate");
  }
  std::vector<double> shares;
  for (const double weight : weights) shares.push_back(weight / total);
  return shares;
}

}  // namespace

// Earliest deadline first among the nodes that may take the item (R. Tijdeman, "The chairman
// assignment problem", Discrete Mathematics 32, 1980). Giving it to the node that would finish
// first drifts 2.5 items away from the shares with eight unequal nodes.
std::vector<std::uint32_t> interleave(std::span<const std::uint64_t> items,
                                      std::span<const double> weights) {
  const std::vector<double> shares = shares_of(weights);
  double largest = 0.0;
  for (const std::uint64_t item : items) largest = std::max(largest, static_cast<double>(item));
  std::vector<double> given(shares.size(), 0.0);
  std::vector<std::uint32_t> nodes;
  nodes.reserve(items.size());
  double total = 0.0;
  for (const std::uint64_t item : items) {
    const auto size = static_cast<double>(item);
    total += size;
    std::size_t best = SIZE_MAX;
    double best_deadline = 0.0;
    for (std::size_t node = 0; node < shares.size(); ++node) {
      if (given[node] + size - shares[node] * total > largest) continue;
      const double deadline = (given[node] + largest) / shares[node];
      if (best != SIZE_MAX && deadline >= best_deadline) continue;
      best = node;
      best_deadline = deadline;
    }
    if (best == SIZE_MAX) best = 0;  // only by rounding: some node is always allowed
    given[best] += size;
    nodes.push_back(static_cast<std::uint32_t>(best));
  }
  return nodes;
}

}  // namespace outboard::plan
