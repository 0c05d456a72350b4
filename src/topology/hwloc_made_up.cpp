// SPDX-License-Identifier: Apache-2.0
// Machines that are described: in a line or in a file.
#include <algorithm>
#include <cctype>

#include "outboard/error.hpp"
#include "topology/hwloc_nodes.hpp"

namespace outboard::topology {
namespace {

constexpr std::uint64_t kMany = std::uint64_t{1} << 31;  // the product of two fits 64 bits

/// How many cpus a synthetic description asks for: the product of its levels' counts, from "numa:2
/// core:4 pu:1" or "2 4 1", without what is in brackets. Saturates at kMany.
std::uint64_t cpus_described(const std::string& text) {
  std::uint64_t cpus = 1;
  int depth = 0;
  for (std::size_t i = 0; i < text.size();) {
    if (text[i] == '(' || text[i] == '[') ++depth;
    if (text[i] == ')' || text[i] == ']') --depth;
    const bool starts = i == 0 || text[i - 1] == ':' || text[i - 1] == ' ';
    if (depth > 0 || !starts || std::isdigit(static_cast<unsigned char>(text[i])) == 0) {
      ++i;
      continue;
    }
    std::uint64_t count = 0;
    for (; i < text.size() && std::isdigit(static_cast<unsigned char>(text[i])) != 0; ++i) {
      count = std::min(count * 10 + static_cast<std::uint64_t>(text[i] - '0'), kMany);
    }
    cpus = std::min(cpus * count, kMany);
  }
  return cpus;
}

[[noreturn]] void refuse_size(const std::string& text, const std::string& what) {
  throw Error(ErrorCode::invalid_config, "machine description \"" + text + "\" has " + what +
                                             "; allowed: at most " +
                                             std::to_string(kMostMadeUpNodes) + " nodes and " +
                                             std::to_string(kMostMadeUpCpus) + " cpus");
}

}  // namespace

Machine synthetic(std::string_view description) {
  const std::string text(description);
  const std::uint64_t cpus = cpus_described(text);
  if (cpus > kMostMadeUpCpus) {
    refuse_size(text, (cpus == kMany ? "at least " : "") + std::to_string(cpus) + " cpus");
  }
  const TopologyHandle topology = make_topology();
  Machine machine;
  machine.real = false;
  if (topology && hwloc_topology_set_synthetic(topology.get(), text.c_str()) == 0 &&
      hwloc_topology_load(topology.get()) == 0) {
    add_nodes(machine, topology.get(), hwloc_topology_get_allowed_cpuset(topology.get()));
    if (machine.nodes.size() > kMostMadeUpNodes) {
      refuse_size(text, std::to_string(machine.nodes.size()) + " nodes");
    }
  }
  if (machine.nodes.empty()) {
    throw Error(ErrorCode::invalid_config,
                "machine description \"" + text +
                    "\" is not one that hwloc reads; write it like \"numa:2 core:4 pu:1\"");
  }
  machine.notes = "source: made up from \"" + text + "\"; nothing is bound\n" + machine.notes;
  describe_nodes(machine);
  return machine;
}

Machine read_xml(const std::string& path) {
  const TopologyHandle topology = make_topology();
  Machine machine;
  machine.real = false;
  if (topology && hwloc_topology_set_xml(topology.get(), path.c_str()) == 0 &&
      hwloc_topology_load(topology.get()) == 0) {
    add_nodes(machine, topology.get(), hwloc_topology_get_allowed_cpuset(topology.get()));
  }
  if (machine.nodes.empty()) {
    throw Error(ErrorCode::invalid_config,
                "machine file " + path +
                    " is not one that hwloc reads; write it with `lstopo machine.xml`");
  }
  machine.notes = "source: " + path + "; nothing is bound\n" + machine.notes;
  describe_nodes(machine);
  return machine;
}

}  // namespace outboard::topology
