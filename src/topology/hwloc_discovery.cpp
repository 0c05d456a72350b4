// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cctype>
#include <limits>
#include <map>
#include <thread>

#include "outboard/error.hpp"
#include "topology/cgroup_quota.hpp"
#include "topology/hwloc_handle.hpp"
#include "topology/machine.hpp"

namespace outboard::topology {
namespace {

std::vector<std::uint32_t> members(hwloc_const_bitmap_t bitmap) {
  std::vector<std::uint32_t> indices;
  for (int i = hwloc_bitmap_first(bitmap); i >= 0; i = hwloc_bitmap_next(bitmap, i)) {
    indices.push_back(static_cast<std::uint32_t>(i));
  }
  return indices;
}

/// The first allowed cpu of every core inside `cpus`; every cpu where hwloc knows no cores.
std::vector<std::uint32_t> one_cpu_per_core(hwloc_topology_t topology, hwloc_const_bitmap_t cpus) {
  std::vector<std::uint32_t> cores;
  const BitmapHandle rest(hwloc_bitmap_dup(cpus));
  for (hwloc_obj_t core = nullptr;
       (core = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_CORE, core)) != nullptr;) {
    const BitmapHandle allowed(hwloc_bitmap_dup(rest.get()));
    hwloc_bitmap_and(allowed.get(), allowed.get(), core->cpuset);
    const int first = hwloc_bitmap_first(allowed.get());
    if (first < 0) continue;
    cores.push_back(static_cast<std::uint32_t>(first));
    hwloc_bitmap_andnot(rest.get(), rest.get(), allowed.get());
  }
  for (const std::uint32_t cpu : members(rest.get())) cores.push_back(cpu);
  std::sort(cores.begin(), cores.end());
  return cores;
}

/// Nodes with at least one allowed cpu. A cpu counts for the first node that lists it: memory-only
/// tiers share their neighbour's cpus or have none.
void add_nodes(Machine& machine, hwloc_topology_t topology, hwloc_const_bitmap_t allowed) {
  const BitmapHandle left(hwloc_bitmap_dup(allowed));
  for (hwloc_obj_t object = nullptr;
       (object = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, object)) != nullptr;) {
    const BitmapHandle cpus(hwloc_bitmap_dup(object->cpuset));
    hwloc_bitmap_and(cpus.get(), cpus.get(), left.get());
    if (hwloc_bitmap_iszero(cpus.get())) continue;
    hwloc_bitmap_andnot(left.get(), left.get(), cpus.get());
    machine.nodes.push_back({.os_index = object->os_index,
                             .cores = one_cpu_per_core(topology, cpus.get()),
                             .cpus = members(cpus.get()),
                             .memory_bytes = object->attr->numanode.local_memory});
  }
}

void add_distances(Machine& machine, hwloc_topology_t topology) {
  unsigned count = 1;
  hwloc_distances_s* distances = nullptr;
  if (hwloc_distances_get_by_type(topology, HWLOC_OBJ_NUMANODE, &count, &distances,
                                  HWLOC_DISTANCES_KIND_FROM_OS, 0) != 0 ||
      count == 0) {
    return;
  }
  std::map<std::uint32_t, unsigned> row_of;
  for (unsigned i = 0; i < distances->nbobjs; ++i) row_of[distances->objs[i]->os_index] = i;
  std::vector<std::uint32_t> rows;
  for (const Node& from : machine.nodes) {
    for (const Node& to : machine.nodes) {
      if (!row_of.contains(from.os_index) || !row_of.contains(to.os_index)) continue;
      const auto value =
          distances->values[row_of[from.os_index] * distances->nbobjs + row_of[to.os_index]];
      rows.push_back(static_cast<std::uint32_t>(value));
    }
  }
  if (rows.size() == machine.nodes.size() * machine.nodes.size()) machine.distances = rows;
  hwloc_distances_release(topology, distances);
}

void describe_nodes(Machine& machine) {
  for (std::size_t i = 0; i < machine.nodes.size(); ++i) {
    const Node& node = machine.nodes[i];
    machine.notes += "node " + std::to_string(i) + ": NUMA node " + std::to_string(node.os_index) +
                     ", " + std::to_string(node.cores.size()) + " cores, " +
                     std::to_string(node.cpus.size()) + " cpus, " +
                     std::to_string(node.memory_bytes >> 20) + " MiB\n";
  }
}

/// What is left when hwloc knows nothing: as many cpus as the standard library sees.
void add_fallback_node(Machine& machine) {
  Node node;
  const unsigned cpus = std::max(1u, std::thread::hardware_concurrency());
  for (std::uint32_t cpu = 0; cpu < cpus; ++cpu) node.cpus.push_back(cpu);
  node.cores = node.cpus;
  machine.nodes.push_back(node);
  machine.real = false;
  machine.notes += "NUMA: not available; one node, nothing is bound\n";
}

void add_quota(Machine& machine) {
  const CpuQuota quota = read_quota("");
  machine.quota_cores = quota.cores;
  machine.notes += quota.cores == 0 ? std::string("CPU quota: none\n")
                                    : "CPU quota: " + std::to_string(quota.cores) + " cores (" +
                                          quota.source + ")\n";
}

void read_topology(Machine& machine, hwloc_topology_t topology) {
  machine.real = hwloc_topology_is_thissystem(topology) != 0;
  const BitmapHandle allowed(hwloc_bitmap_dup(hwloc_topology_get_allowed_cpuset(topology)));
  const BitmapHandle bound(hwloc_bitmap_alloc());
  if (machine.real && hwloc_get_cpubind(topology, bound.get(), HWLOC_CPUBIND_THREAD) == 0) {
    hwloc_bitmap_and(allowed.get(), allowed.get(), bound.get());
  }
  add_nodes(machine, topology, allowed.get());
  add_distances(machine, topology);
  machine.notes += machine.real ? "source: hwloc, within the affinity of the calling thread\n"
                                : "source: hwloc, told of another machine; nothing is bound\n";
}

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

Machine discover() {
  Machine machine;
  const TopologyHandle topology = make_topology();
  if (topology && hwloc_topology_load(topology.get()) == 0) read_topology(machine, topology.get());
  if (machine.nodes.empty()) add_fallback_node(machine);
  describe_nodes(machine);
  add_quota(machine);
  return machine;
}

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
    add_distances(machine, topology.get());
  }
  if (machine.nodes.empty()) {
    throw Error(ErrorCode::invalid_config,
                "machine description \"" + text +
                    "\" is not one that hwloc reads; write it like \"numa:2 core:4 pu:1\"");
  }
  machine.notes = "source: made up from \"" + text + "\"; nothing is bound\n";
  describe_nodes(machine);
  return machine;
}

}  // namespace outboard::topology
