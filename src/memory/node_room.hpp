// SPDX-License-Identifier: Apache-2.0
/// How much memory each NUMA node can still give.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "topology/machine.hpp"

namespace outboard::memory {

inline constexpr std::uint64_t kUnknownRoom = UINT64_MAX;

/// Bytes free on the node of this number of the system's, with file pages that the kernel gives up
/// at need, without what it keeps for itself, less a tenth for whoever else is there; or in huge
/// pages that are reserved there and not taken, if those are more: an arena is in pages of one
/// kind, so that one which takes some of both is not to be had. kUnknownRoom where the system does
/// not say. `root` stands in front of /proc and /sys; "" is the running system.
[[nodiscard]] std::uint64_t free_bytes_of(const std::string& root, std::uint32_t os_node);

/// The same for each of the machine's nodes, together with the memory without cpus that is nearest
/// to it. A made-up node has all that it is described with.
[[nodiscard]] std::vector<std::uint64_t> read_node_room(const topology::Machine& machine,
                                                        const std::string& root);

}  // namespace outboard::memory
