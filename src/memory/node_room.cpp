// SPDX-License-Identifier: Apache-2.0
#include "memory/node_room.hpp"

#include <unistd.h>

#include <fstream>
#include <sstream>

#include "memory/huge_pages.hpp"

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

std::uint64_t free_bytes_of(const std::string& root, std::uint32_t os_node) {
  std::ifstream file(root + "/sys/devices/system/node/node" + std::to_string(os_node) + "/meminfo");
  std::uint64_t kibibytes = 0;
  bool known = false;
  for (std::string line; std::getline(file, line);) {  // "Node 0 MemFree:  123 kB"
    std::istringstream words(line);
    std::string node, number, name;
    std::uint64_t value = 0;
    if (!(words >> node >> number >> name >> value)) continue;
    if (name == "MemFree:") known = true;
    if (name == "MemFree:" || name == "Active(file):" || name == "Inactive(file):") {
      kibibytes += value;
    }
  }
  if (!known) return kUnknownRoom;
  const std::uint64_t kept = kept_bytes(root, os_node);
  const std::uint64_t bytes = kibibytes << 10;
  const std::uint64_t ordinary = bytes > kept ? (bytes - kept) / 10 * 9 : 0;
  return ordinary + reserved_huge_bytes(root, os_node);
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
