// SPDX-License-Identifier: Apache-2.0
/// From hwloc's objects to a Machine, for this room only.
#pragma once

#include <vector>

#include "topology/hwloc_handle.hpp"
#include "topology/machine.hpp"

namespace outboard::topology {

[[nodiscard]] std::vector<std::uint32_t> members(hwloc_const_bitmap_t bitmap);

/// Fills in nodes, memory_nodes and distances of a loaded topology, of which the cpus `allowed` may
/// be used, and notes what is left out. No node at all if none of them is known.
void add_nodes(Machine& machine, hwloc_topology_t topology, hwloc_const_bitmap_t allowed);

/// A line of notes for each node, memory-only ones last.
void describe_nodes(Machine& machine);

}  // namespace outboard::topology
