// SPDX-License-Identifier: Apache-2.0
/// Shares a sequence of buckets out to NUMA nodes by their rates.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace outboard::plan {

/// The node of each item, in order. For every prefix the sum of each node's items is within the
/// largest item of its share `weights[node] / sum of weights` of the prefix.
/// @throws Error{invalid_argument} for no node, or a weight that is not positive and finite.
[[nodiscard]] std::vector<std::uint32_t> interleave(std::span<const std::uint64_t> items,
                                                    std::span<const double> weights);

}  // namespace outboard::plan
