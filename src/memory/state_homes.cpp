// SPDX-License-Identifier: Apache-2.0
#include "memory/state_homes.hpp"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>

namespace outboard::memory {
namespace {

/// What the kernel keeps free on a node: below that it takes pages of another.
std::uint64_t kept_bytes(const std::string& root, std::uint32_t os_node) {
  std::ifstream file(root + "/proc/zoneinfo");
  const std::string mine = "Node " + std::to_string(os_node) + ",";
  std::uint64_t pages = 0;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("Node ")) inside = line.starts_with(mine);
    std::istringstream words(line);
    std::string name;
    std::uint64_t value = 0;
    if (inside && words >> name >> value && name == "high") pages += value;
  }
  return pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace

std::uint32_t os_node_of(const topology::Machine& machine, const ArenaPlace& place) {
  return place.memory_node ? machine.memory_nodes[*place.memory_node].os_index
                           : machine.nodes[place.node].os_index;
}

std::uint64_t free_bytes_of(const std::string& root, std::uint32_t os_node) {
  std::ifstream file(root + "/sys/devices/system/node/node" + std::to_string(os_node) + "/meminfo");
  std::uint64_t kibibytes = 0;
  for (std::string line; std::getline(file, line);) {  // "Node 0 MemFree:  123 kB"
    std::istringstream words(line);
    std::string node, number, name;
    std::uint64_t value = 0;
    if (!(words >> node >> number >> name >> value)) continue;
    if (name == "MemFree:" || name == "Active(file):" || name == "Inactive(file):") {
      kibibytes += value;
    }
  }
  const std::uint64_t kept = kept_bytes(root, os_node);
  const std::uint64_t bytes = kibibytes << 10;
  return bytes > kept ? (bytes - kept) / 10 * 9 : 0;
}

StateHomes::StateHomes(const topology::Machine& machine, const std::string& root)
    : machine_(machine) {
  if (machine.memory_nodes.empty()) return;
  for (const topology::Node& node : machine.nodes) {
    node_free_.push_back(free_bytes_of(root, node.os_index));
  }
  for (const topology::MemoryNode& memory : machine.memory_nodes) {
    memory_free_.push_back(free_bytes_of(root, memory.os_index));
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
