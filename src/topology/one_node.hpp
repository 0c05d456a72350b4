// SPDX-License-Identifier: Apache-2.0
/// Machines that tell nothing, or not enough, of NUMA nodes.
#pragma once

#include <string>

#include "topology/machine.hpp"

namespace outboard::topology {

/// "" if /sys/devices/system/node below `root` has nodes and each says which cpus and how much
/// memory it has; else what is missing.
[[nodiscard]] std::string numa_problem(const std::string& root);

/// One node with every allowed cpu and all memory, with nothing read but cpu lists and
/// /proc/meminfo. Whatever is missing is guessed: at least one cpu, each a core of its own.
void add_one_node(Machine& machine, const std::string& root);

}  // namespace outboard::topology
