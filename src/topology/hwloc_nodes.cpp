// SPDX-License-Identifier: Apache-2.0
#include "topology/hwloc_nodes.hpp"

#include <algorithm>
#include <map>
#include <string_view>

namespace outboard::topology {
namespace {

BitmapHandle both(hwloc_const_bitmap_t a, hwloc_const_bitmap_t b) {
  BitmapHandle result(hwloc_bitmap_alloc());
  if (result) hwloc_bitmap_and(result.get(), a, b);
  return result;
}

/// The first allowed cpu of every core inside `cpus`; every cpu where hwloc knows no cores.
std::vector<std::uint32_t> one_cpu_per_core(hwloc_topology_t topology, hwloc_const_bitmap_t cpus) {
  std::vector<std::uint32_t> cores;
  const BitmapHandle rest(hwloc_bitmap_dup(cpus));
  for (hwloc_obj_t core = nullptr;
       (core = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_CORE, core)) != nullptr;) {
    const BitmapHandle allowed = both(rest.get(), core->cpuset);
    const int first = hwloc_bitmap_first(allowed.get());
    if (first < 0) continue;
    cores.push_back(static_cast<std::uint32_t>(first));
    hwloc_bitmap_andnot(rest.get(), rest.get(), allowed.get());
  }
  for (const std::uint32_t cpu : members(rest.get())) cores.push_back(cpu);
  std::sort(cores.begin(), cores.end());
  return cores;
}

std::vector<hwloc_obj_t> numa_objects(hwloc_topology_t topology) {
  std::vector<hwloc_obj_t> objects;
  for (hwloc_obj_t object = nullptr;
       (object = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, object)) != nullptr;) {
    objects.push_back(object);
  }
  std::sort(objects.begin(), objects.end(),
            [](hwloc_obj_t a, hwloc_obj_t b) { return a->os_index < b->os_index; });
  return objects;
}

std::string name_of(hwloc_obj_t object) {
  return "NUMA node " + std::to_string(object->os_index);
}

/// Distances among all of hwloc's NUMA nodes, by their OS numbers.
class Distances {
 public:
  explicit Distances(hwloc_topology_t topology) : topology_(topology) {
    unsigned count = 1;
    if (hwloc_distances_get_by_type(topology, HWLOC_OBJ_NUMANODE, &count, &found_,
                                    HWLOC_DISTANCES_KIND_FROM_OS, 0) != 0 ||
        count == 0) {
      found_ = nullptr;
      return;
    }
    for (unsigned i = 0; i < found_->nbobjs; ++i) row_of_[found_->objs[i]->os_index] = i;
  }
  ~Distances() {
    if (found_ != nullptr) hwloc_distances_release(topology_, found_);
  }
  Distances(const Distances&) = delete;
  Distances& operator=(const Distances&) = delete;

  /// 0: unknown.
  [[nodiscard]] std::uint32_t between(std::uint32_t from, std::uint32_t to) const {
    const auto row = row_of_.find(from);
    const auto column = row_of_.find(to);
    if (row == row_of_.end() || column == row_of_.end()) return 0;
    return static_cast<std::uint32_t>(
        found_->values[row->second * found_->nbobjs + column->second]);
  }

 private:
  hwloc_topology_t topology_;
  hwloc_distances_s* found_ = nullptr;
  std::map<std::uint32_t, unsigned> row_of_;
};

/// The node with the first cpu of `object` that is allowed; else the nearest by distance; else 0.
std::uint32_t nearest_to(hwloc_obj_t object, const Machine& machine, const Distances& distances) {
  std::uint32_t nearest = 0;
  std::uint32_t least = UINT32_MAX;
  for (std::uint32_t i = 0; i < machine.nodes.size(); ++i) {
    const Node& node = machine.nodes[i];
    for (const std::uint32_t cpu : node.cpus) {
      if (hwloc_bitmap_isset(object->cpuset, cpu) != 0) return i;
    }
    const std::uint32_t distance = distances.between(node.os_index, object->os_index);
    if (distance == 0 || distance >= least) continue;
    least = distance;
    nearest = i;
  }
  return nearest;
}

void add_without_cpus(Machine& machine, hwloc_obj_t object, hwloc_const_bitmap_t allowed,
                      const Distances& distances) {
  if (object->subtype != nullptr && std::string_view(object->subtype) == "GPUMemory") {
    machine.notes += name_of(object) + ": memory of a GPU, left alone\n";
  } else if (hwloc_bitmap_iszero(object->complete_cpuset) == 0 &&
             hwloc_bitmap_intersects(object->complete_cpuset, allowed) == 0) {
    machine.notes += name_of(object) + ": none of its cpus is allowed, left alone\n";
  } else if (object->attr->numanode.local_memory > 0) {
    machine.memory_nodes.push_back({.os_index = object->os_index,
                                    .memory_bytes = object->attr->numanode.local_memory,
                                    .nearest = nearest_to(object, machine, distances)});
  }
}

void add_distances(Machine& machine, const Distances& distances) {
  std::vector<std::uint32_t> rows;
  for (const Node& from : machine.nodes) {
    for (const Node& to : machine.nodes) {
      rows.push_back(distances.between(from.os_index, to.os_index));
    }
  }
  if (std::find(rows.begin(), rows.end(), 0U) == rows.end()) machine.distances = std::move(rows);
}

/// A control group may forbid a node's memory and allow its cpus: hwloc then hides the node.
void adopt(Machine& machine, hwloc_topology_t topology, hwloc_const_bitmap_t homeless) {
  if (machine.nodes.empty() || hwloc_bitmap_iszero(homeless) != 0) return;
  Node& node = machine.nodes.front();
  const auto append = [](std::vector<std::uint32_t>& to, const std::vector<std::uint32_t>& from) {
    to.insert(to.end(), from.begin(), from.end());
    std::sort(to.begin(), to.end());
  };
  append(node.cpus, members(homeless));
  append(node.cores, one_cpu_per_core(topology, homeless));
  machine.notes += std::to_string(members(homeless).size()) +
                   " allowed cpus are of nodes whose memory is not allowed: counted for node 0\n";
}

}  // namespace

std::vector<std::uint32_t> members(hwloc_const_bitmap_t bitmap) {
  std::vector<std::uint32_t> indices;
  for (int i = hwloc_bitmap_first(bitmap); i >= 0; i = hwloc_bitmap_next(bitmap, i)) {
    indices.push_back(static_cast<std::uint32_t>(i));
  }
  return indices;
}

// A cpu counts for the first node that lists it: memory-only tiers share their neighbour's cpus or
// have none.
void add_nodes(Machine& machine, hwloc_topology_t topology, hwloc_const_bitmap_t allowed) {
  const BitmapHandle left(hwloc_bitmap_dup(allowed));
  const Distances distances(topology);
  std::vector<hwloc_obj_t> without_cpus;
  for (hwloc_obj* object : numa_objects(topology)) {
    const BitmapHandle cpus = both(object->cpuset, left.get());
    if (hwloc_bitmap_iszero(cpus.get()) != 0) {
      without_cpus.push_back(object);
      continue;
    }
    hwloc_bitmap_andnot(left.get(), left.get(), cpus.get());
    machine.nodes.push_back({.os_index = object->os_index,
                             .cores = one_cpu_per_core(topology, cpus.get()),
                             .cpus = members(cpus.get()),
                             .memory_bytes = object->attr->numanode.local_memory});
  }
  adopt(machine, topology, left.get());
  for (hwloc_obj* object : without_cpus) {
    add_without_cpus(machine, object, allowed, distances);
  }
  add_distances(machine, distances);
}

void describe_nodes(Machine& machine) {
  for (std::size_t i = 0; i < machine.nodes.size(); ++i) {
    const Node& node = machine.nodes[i];
    machine.notes += "node " + std::to_string(i) + ": NUMA node " + std::to_string(node.os_index) +
                     ", " + std::to_string(node.cores.size()) + " cores, " +
                     std::to_string(node.cpus.size()) + " cpus, " +
                     std::to_string(node.memory_bytes >> 20) + " MiB\n";
  }
  for (const MemoryNode& memory : machine.memory_nodes) {
    machine.notes += "NUMA node " + std::to_string(memory.os_index) + ": memory only, " +
                     std::to_string(memory.memory_bytes >> 20) + " MiB, nearest to node " +
                     std::to_string(memory.nearest) + "\n";
  }
}

}  // namespace outboard::topology
