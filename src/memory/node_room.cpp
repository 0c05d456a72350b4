// SPDX-License-Identifier: Apache-2.0
#include "memory/node_room.hpp"

#include <algorithm>

#include "memory/huge_pages.hpp"
#include "topology/node_memory.hpp"

namespace outboard::memory {

std::uint64_t free_bytes_of(const std::string& root, std::uint32_t os_node) {
  const auto memory = topology::read_node_memory(root, os_node);
  if (!memory) return kUnknownRoom;
  const std::uint64_t bytes = memory->free_bytes + memory->file_bytes;
  const std::uint64_t kept = memory->kept_bytes;
  const std::uint64_t ordinary = bytes > kept ? (bytes - kept) / 10 * 9 : 0;
  return std::max<std::uint64_t>(ordinary, reserved_huge_bytes(root, os_node));
}

std::vector<std::uint64_t> read_node_room(const topology::Machine& machine,
                                          const std::string& root) {
  std::vector<std::uint64_t> room;
  for (const topology::Node& node : machine.nodes) {
    const std::uint64_t described = node.memory_bytes > 0 ? node.memory_bytes : kUnknownRoom;
    room.push_back(machine.real ? free_bytes_of(root, node.os_index) : described);
  }
  for (const topology::MemoryNode& memory : machine.memory_nodes) {
    std::uint64_t& beside = room[memory.nearest];
    const std::uint64_t more =
        machine.real ? free_bytes_of(root, memory.os_index) : memory.memory_bytes;
    if (beside != kUnknownRoom && more != kUnknownRoom) beside += more;
  }
  return room;
}

}  // namespace outboard::memory
