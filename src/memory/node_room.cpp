// SPDX-License-Identifier: Apache-2.0
#include "memory/node_room.hpp"

#include <fstream>
#include <sstream>

namespace outboard::memory {
namespace {

/// "Node 0 MemFree:  123 kB". @return kUnknownRoom without such a line.
std::uint64_t free_bytes(const std::string& path) {
  std::ifstream file(path);
  std::uint64_t kibibytes = 0;
  bool known = false;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string node, number, name;
    std::uint64_t value = 0;
    if (!(words >> node >> number >> name >> value)) continue;
    if (name == "MemFree:") known = true;
    if (name == "MemFree:" || name == "Active(file):" || name == "Inactive(file):") {
      kibibytes += value;
    }
  }
  return known ? kibibytes << 10 : kUnknownRoom;
}

}  // namespace

std::vector<std::uint64_t> read_node_room(const topology::Machine& machine,
                                          const std::string& root) {
  std::vector<std::uint64_t> room;
  for (const topology::Node& node : machine.nodes) {
    if (!machine.real) {
      room.push_back(node.memory_bytes > 0 ? node.memory_bytes : kUnknownRoom);
      continue;
    }
    const std::uint64_t free = free_bytes(root + "/sys/devices/system/node/node" +
                                          std::to_string(node.os_index) + "/meminfo");
    room.push_back(free == kUnknownRoom ? free : free / 10 * 9);
  }
  return room;
}

}  // namespace outboard::memory
