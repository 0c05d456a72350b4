// SPDX-License-Identifier: Apache-2.0
#include "topology/node_memory.hpp"

#include <unistd.h>

#include <fstream>
#include <sstream>

namespace outboard::topology {
namespace {

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

std::optional<NodeMemory> read_node_memory(const std::string& root, std::uint32_t os_node) {
  std::ifstream file(root + "/sys/devices/system/node/node" + std::to_string(os_node) + "/meminfo");
  NodeMemory memory;
  bool known = false;
  for (std::string line; std::getline(file, line);) {  // "Node 0 MemFree:  123 kB"
    std::istringstream words(line);
    std::string node, number, name;
    std::uint64_t kibibytes = 0;
    if (!(words >> node >> number >> name >> kibibytes)) continue;
    const std::uint64_t bytes = kibibytes << 10;
    if (name == "MemTotal:") memory.total_bytes = bytes;
    if (name == "MemFree:") memory.free_bytes = bytes;
    if (name == "MemFree:") known = true;
    if (name == "Active(file):" || name == "Inactive(file):") memory.file_bytes += bytes;
    if (name == "SReclaimable:") memory.slab_bytes = bytes;
  }
  if (!known) return std::nullopt;
  memory.kept_bytes = kept_bytes(root, os_node);
  return memory;
}

}  // namespace outboard::topology
