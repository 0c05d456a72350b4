// SPDX-License-Identifier: Apache-2.0
#include "topology/one_node.hpp"

#include <algorithm>
#include <cctype>
#include <system_error>
#include <thread>

#include "topology/affinity.hpp"
#include "topology/system_files.hpp"

namespace outboard::topology {
namespace {

std::vector<std::uint32_t> usable_cpus(const std::string& root) {
  std::vector<std::uint32_t> cpus = allowed_cpus(root);
  const auto online = first_line(root + "/sys/devices/system/cpu/online");
  const auto known = online ? parse_cpu_list(*online) : std::nullopt;
  if (cpus.empty()) return known.value_or(cpus);
  // A cpu that is offline may still be in the mask.
  if (known && !known->empty()) {
    std::erase_if(cpus,
                  [&](std::uint32_t cpu) { return !std::ranges::binary_search(*known, cpu); });
  }
  return cpus;
}

/// The first usable cpu of the core that `cpu` is a thread of.
std::uint32_t first_sibling(const std::string& root, std::uint32_t cpu,
                            const std::vector<std::uint32_t>& usable) {
  const std::string folder =
      root + "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
  for (const char* name : {"core_cpus_list", "thread_siblings_list"}) {
    const auto line = first_line(folder + name);
    const auto siblings = line ? parse_cpu_list(*line) : std::nullopt;
    if (!siblings || !std::ranges::binary_search(*siblings, cpu)) continue;
    for (const std::uint32_t sibling : *siblings) {
      if (std::ranges::binary_search(usable, sibling)) return sibling;
    }
  }
  return cpu;
}

}  // namespace

std::string numa_problem(const std::string& root) {
  const std::string folder = root + "/sys/devices/system/node";
  int error = 0;
  std::vector<std::string> nodes = names_in(folder, "node", &error);
  std::erase_if(nodes, [](const std::string& name) {
    return name.size() == 4 || std::isdigit(static_cast<unsigned char>(name[4])) == 0;
  });
  if (error != 0) return folder + ": " + std::generic_category().message(error);
  if (nodes.empty()) return folder + " has no nodes";
  for (const std::string& node : nodes) {
    std::string place = folder + "/";
    place += node;
    const std::string cpus = place + "/cpulist";
    const auto line = first_line(cpus);  // of memory alone: an empty line
    if (!line || !parse_cpu_list(*line)) return cpus + " is missing or no list";
    const std::string memory = place + "/meminfo";
    if (!entry_number(memory, "Node " + node.substr(4) + " MemTotal:")) {
      return memory + " is missing or has no MemTotal";
    }
  }
  return "";
}

void add_one_node(Machine& machine, const std::string& root) {
  Node node;
  node.cpus = usable_cpus(root);
  if (node.cpus.empty()) {
    const unsigned cpus = root.empty() ? std::max(1U, std::thread::hardware_concurrency()) : 1U;
    for (std::uint32_t cpu = 0; cpu < cpus; ++cpu) node.cpus.push_back(cpu);
    machine.notes += "allowed cpus: unknown, " + std::to_string(cpus) + " assumed\n";
  }
  for (const std::uint32_t cpu : node.cpus) {
    if (first_sibling(root, cpu, node.cpus) == cpu) node.cores.push_back(cpu);
  }
  node.memory_bytes = entry_number(root + "/proc/meminfo", "MemTotal:").value_or(0) << 10;
  machine.nodes = {std::move(node)};
  machine.memory_nodes.clear();
  machine.distances.clear();
  machine.numa_known = false;
}

}  // namespace outboard::topology
