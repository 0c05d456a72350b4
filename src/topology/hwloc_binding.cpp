// SPDX-License-Identifier: Apache-2.0
#include <pthread.h>
#include <sched.h>

#include <cerrno>
#include <memory>
#include <system_error>

#include "topology/binding_probe.hpp"
#include "topology/hwloc_handle.hpp"
#include "topology/machine.hpp"

namespace outboard::topology {
namespace {

std::string refusal(const char* call, int error, const char* remedy) {
  return std::string(call) + ": " + std::generic_category().message(error) + " (errno " +
         std::to_string(error) + "); " + remedy;
}

/// A cpu_set_t for machines of any size.
class CpuSet {
 public:
  explicit CpuSet(std::size_t cpus) : bytes_(CPU_ALLOC_SIZE(cpus)), set_(CPU_ALLOC(cpus)) {
    if (set_) CPU_ZERO_S(bytes_, set_.get());
  }
  void add(std::size_t cpu) noexcept { CPU_SET_S(cpu, bytes_, set_.get()); }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] cpu_set_t* get() const noexcept { return set_.get(); }

 private:
  struct Deleter {
    void operator()(cpu_set_t* set) const noexcept { CPU_FREE(set); }
  };
  std::size_t bytes_;
  std::unique_ptr<cpu_set_t, Deleter> set_;
};

std::string set_this_thread_cpus(const std::vector<std::uint32_t>& cpus) {
  std::uint32_t highest = 0;
  for (const std::uint32_t cpu : cpus) highest = cpu > highest ? cpu : highest;
  CpuSet set(highest + 1);
  if (set.get() == nullptr) return refusal("CPU_ALLOC", ENOMEM, "free some memory");
  for (const std::uint32_t cpu : cpus) set.add(cpu);
  const int error = pthread_setaffinity_np(pthread_self(), set.bytes(), set.get());
  if (error == 0) return "";
  return refusal("sched_setaffinity", error,
                 "in a container allow it in the seccomp profile (docker: --security-opt "
                 "seccomp=FILE)");
}

}  // namespace

std::string bind_memory_to(const Machine& machine, std::uint32_t os_node,
                           std::span<std::byte> memory) {
  if (!machine.real || !machine.numa_known || memory.empty()) return "";
  const TopologyHandle topology = make_topology();
  if (!topology || hwloc_topology_load(topology.get()) != 0) {
    return refusal("hwloc_topology_load", errno, "the machine stays unknown");
  }
  if (hwloc_get_nbobjs_by_type(topology.get(), HWLOC_OBJ_NUMANODE) < 2) return "";
  const BitmapHandle nodes(hwloc_bitmap_alloc());
  if (!nodes || hwloc_bitmap_only(nodes.get(), os_node) != 0) {
    return refusal("hwloc_bitmap_only", ENOMEM, "free some memory");
  }
  // Not strict: a full node spills to its neighbours instead of ending the process.
  if (hwloc_set_area_membind(topology.get(), memory.data(), memory.size(), nodes.get(),
                             HWLOC_MEMBIND_BIND, HWLOC_MEMBIND_BYNODESET) == 0) {
    return "";
  }
  const int error = errno;
  return refusal("mbind", error, memory_policy_remedy(error));
}

std::string bind_this_thread(const Machine& machine, std::uint32_t node) {
  if (!machine.real || node >= machine.nodes.size() || machine.nodes[node].cpus.empty()) return "";
  return set_this_thread_cpus(machine.nodes[node].cpus);
}

}  // namespace outboard::topology
