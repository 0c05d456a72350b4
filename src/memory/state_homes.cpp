// SPDX-License-Identifier: Apache-2.0
#include "memory/state_homes.hpp"

#include <algorithm>

#include "memory/node_room.hpp"

namespace outboard::memory {

std::uint32_t os_node_of(const topology::Machine& machine, const ArenaPlace& place) {
  return place.memory_node ? machine.memory_nodes[*place.memory_node].os_index
                           : machine.nodes[place.node].os_index;
}

StateHomes::StateHomes(const topology::Machine& machine, const std::string& root)
    : machine_(machine) {
  if (machine.memory_nodes.empty()) return;
  for (const topology::Node& node : machine.nodes) {
    node_free_.push_back(free_bytes_of(root, node.os_index));
  }
  for (const topology::MemoryNode& memory : machine.memory_nodes) {
    const std::uint64_t free = free_bytes_of(root, memory.os_index);
    memory_free_.push_back(free == kUnknownRoom ? 0 : free);
  }
}

void StateHomes::keep(std::uint32_t node, std::size_t bytes) {
  if (node_free_.empty()) return;
  node_free_[node] -= std::min<std::uint64_t>(node_free_[node], bytes);
}

ArenaPlace StateHomes::place(std::uint32_t node, std::size_t bytes) {
  if (node_free_.empty() || bytes == 0) return node;
  if (bytes <= node_free_[node]) {
    keep(node, bytes);
    return node;
  }
  for (std::uint32_t i = 0; i < memory_free_.size(); ++i) {
    if (machine_.memory_nodes[i].nearest != node || bytes > memory_free_[i]) continue;
    memory_free_[i] -= bytes;
    return {node, i};
  }
  keep(node, bytes);
  return node;
}

}  // namespace outboard::memory
