// SPDX-License-Identifier: Apache-2.0
/// What Linux says of the memory of one NUMA node.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace outboard::topology {

struct NodeMemory {
  std::uint64_t total_bytes = 0;  ///< 0: not said
  std::uint64_t free_bytes = 0;   ///< that nobody uses
  std::uint64_t file_bytes = 0;   ///< pages of files, which the kernel gives up at need
  std::uint64_t slab_bytes = 0;   ///< of the kernel's own, which it gives up too
  std::uint64_t kept_bytes = 0;   ///< what it keeps free: below that it takes pages of other nodes
};

/// Of the node to which the system gives this number, below `root` ("" is the running system);
/// nullopt where it does not say what is free.
[[nodiscard]] std::optional<NodeMemory> read_node_memory(const std::string& root,
                                                         std::uint32_t os_node);

}  // namespace outboard::topology
