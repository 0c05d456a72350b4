// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>

#include "topology/affinity.hpp"
#include "topology/cgroup_quota.hpp"
#include "topology/hwloc_nodes.hpp"
#include "topology/machine.hpp"
#include "topology/one_node.hpp"

namespace outboard::topology {
namespace {

/// hwloc takes the place of /proc and /sys from the environment alone.
class ScopedRoot {
 public:
  explicit ScopedRoot(const std::string& root) : set_(!root.empty()) {
    if (!set_) return;
    if (const char* before = std::getenv(kName)) before_ = before;
    (void)setenv(kName, root.c_str(), 1);  // without memory hwloc describes this machine
  }
  ~ScopedRoot() {
    if (!set_) return;
    before_ ? (void)setenv(kName, before_->c_str(), 1) : (void)unsetenv(kName);
  }
  ScopedRoot(const ScopedRoot&) = delete;
  ScopedRoot& operator=(const ScopedRoot&) = delete;

 private:
  static constexpr const char* kName = "HWLOC_FSROOT";
  bool set_;
  std::optional<std::string> before_;
};

/// The user has hwloc describe another machine: what this one's files say does not matter then.
bool hwloc_is_told() {
  constexpr std::array<const char*, 4> kNames = {"HWLOC_FSROOT", "HWLOC_XMLFILE", "HWLOC_SYNTHETIC",
                                                 "HWLOC_COMPONENTS"};
  return std::any_of(kNames.begin(), kNames.end(),
                     [](const char* name) { return std::getenv(name) != nullptr; });
}

BitmapHandle cpus_allowed(hwloc_topology_t topology, const std::string& root, bool real) {
  BitmapHandle allowed(hwloc_bitmap_dup(hwloc_topology_get_allowed_cpuset(topology)));
  const BitmapHandle bound(hwloc_bitmap_alloc());
  if (!allowed || !bound) return allowed;
  if (real) {
    if (hwloc_get_cpubind(topology, bound.get(), HWLOC_CPUBIND_THREAD) != 0) return allowed;
  } else {
    const std::vector<std::uint32_t> cpus =
        root.empty() ? std::vector<std::uint32_t>{} : allowed_cpus(root);
    if (cpus.empty()) return allowed;
    for (const std::uint32_t cpu : cpus) (void)hwloc_bitmap_set(bound.get(), cpu);
  }
  hwloc_bitmap_and(allowed.get(), allowed.get(), bound.get());
  return allowed;
}

void read_nodes(Machine& machine, const std::string& root) {
  const ScopedRoot scoped(root);
  const TopologyHandle topology = make_topology();
  if (!topology || hwloc_topology_load(topology.get()) != 0) return;
  machine.real = root.empty() && hwloc_topology_is_thissystem(topology.get()) != 0;
  const BitmapHandle allowed = cpus_allowed(topology.get(), root, machine.real);
  if (allowed) add_nodes(machine, topology.get(), allowed.get());
}

std::string source_of(const Machine& machine, const std::string& root) {
  if (!root.empty()) return "files below " + root + "; nothing is bound";
  return machine.real ? "hwloc, within the affinity of the calling thread"
                      : "hwloc, told of another machine; nothing is bound";
}

void add_limits(Machine& machine, const std::string& root) {
  const CpuQuota quota = read_quota(root);
  machine.quota_cores = quota.cores;
  machine.quota_source = quota.source;
  machine.notes += quota.cores == 0 ? std::string("CPU quota: none\n")
                                    : "CPU quota: " + std::to_string(quota.cores) + " cores (" +
                                          quota.source + ")\n";
}

}  // namespace

// hwloc ends the process where the folder of nodes is empty, and guesses where one of them says
// nothing: it is asked only where all of them do.
Machine discover(const std::string& root) {
  Machine machine;
  machine.real = root.empty();
  std::string problem = root.empty() && hwloc_is_told() ? "" : numa_problem(root);
  if (problem.empty()) {
    read_nodes(machine, root);
    if (machine.nodes.empty()) problem = "hwloc finds none with an allowed cpu";
  }
  machine.notes = "source: " + source_of(machine, root) + "\n" + machine.notes;
  if (!problem.empty()) {
    add_one_node(machine, root);
    machine.notes += "NUMA: not available (" + problem + "); one node, no memory is bound\n";
  }
  describe_nodes(machine);
  add_limits(machine, root);
  return machine;
}

}  // namespace outboard::topology
