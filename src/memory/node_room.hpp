// SPDX-License-Identifier: Apache-2.0
/// How much memory each NUMA node can still give.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "topology/machine.hpp"

namespace outboard::memory {

inline constexpr std::uint64_t kUnknownRoom = UINT64_MAX;

/// Bytes free on each of the machine's nodes (/sys/devices/system/node), with file pages that the
/// kernel gives up at need, less a tenth for whoever else is there; kUnknownRoom where the system
/// does not say. A made-up node has all that it is described with. `root` stands in front of the
/// path; "" is the running system.
[[nodiscard]] std::vector<std::uint64_t> read_node_room(const topology::Machine& machine,
                                                        const std::string& root);

}  // namespace outboard::memory
