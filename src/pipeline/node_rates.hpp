// SPDX-License-Identifier: Apache-2.0
/// How fast each NUMA node updates state: short trials on memory of its own.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "pipeline/flow.hpp"

namespace outboard::pipeline {

/// Elements of AdamW on 16-bit gradients that each node updates per second while the others do the
/// same: the best of a few passes over at most `elems_per_node` elements, 16 bytes each, which are
/// mapped on the node for as long. Nothing else may be running. Waits, some milliseconds. Real time
/// only. 0 for a node too fast to tell. @throws Error{out_of_memory}.
[[nodiscard]] std::vector<double> measure_node_rates(std::unique_lock<std::mutex>& lock, Flow& flow,
                                                     const topology::Machine& machine,
                                                     std::uint64_t elems_per_node);

}  // namespace outboard::pipeline
