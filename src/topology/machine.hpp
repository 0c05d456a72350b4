// SPDX-License-Identifier: Apache-2.0
/// The machine as a plain value: NUMA nodes, the cores we may use, memory, distances.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace outboard::topology {

struct Node {
  std::uint32_t os_index = 0;
  std::vector<std::uint32_t> cores;  ///< one OS cpu number per allowed physical core
  std::vector<std::uint32_t> cpus;   ///< every allowed OS cpu number (hyper-threads too)
  std::uint64_t memory_bytes = 0;    ///< 0: none of its own, or unknown
};

/// Host memory without cpus of its own: a slower or faster tier beside a node's memory. Never the
/// memory of a GPU.
struct MemoryNode {
  std::uint32_t os_index = 0;
  std::uint64_t memory_bytes = 0;
  std::uint32_t nearest = 0;  ///< index in Machine::nodes of the node whose cpus reach it first
};

struct Machine {
  std::vector<Node> nodes;               ///< at least one; each with at least one core
  std::vector<std::uint32_t> distances;  ///< nodes x nodes, row by row, 10 = local; empty: unknown
  bool real = true;                      ///< false: made up; nothing is bound
  std::uint32_t quota_cores = 0;         ///< cgroup CPU quota rounded down, at least 1; 0: no quota
  std::string notes;                     ///< what was found and from where, one line each
  std::vector<MemoryNode> memory_nodes;  ///< in the order of their OS numbers
  /// A CPU quota has fewer cores than there are nodes: one stands for all (within_quota()).
  bool nodes_beyond_quota = false;
  bool numa_known = true;    ///< false: one node stands for all, and no memory can be bound
  std::string quota_source;  ///< the file that sets quota_cores, and what it says
};

inline constexpr std::uint64_t kMostMadeUpCpus = 4096;
inline constexpr std::size_t kMostMadeUpNodes = 64;
inline constexpr std::uint32_t kMostThreads = 4096;  ///< of one engine, on all nodes together

/// What hwloc sees, restricted to the calling thread's affinity; the limits of control groups are
/// read beside it. One node with all allowed cpus and all memory where the system says nothing of
/// nodes, or not all of it. Never throws for a strange machine.
/// `root` stands in front of /proc and /sys; "" is the running system. Any other is a description
/// of some machine, on which nothing is bound, and whose affinity is that of its /proc/self/status;
/// the environment is changed while it is read, so that no other thread may read it then.
[[nodiscard]] Machine discover(const std::string& root = "");
/// A made-up machine from an hwloc synthetic description such as "numa:2 core:4 pu:1".
/// @throws Error{invalid_config} quoting the text if hwloc cannot read it, or if it has more than
/// kMostMadeUpCpus cpus or kMostMadeUpNodes nodes, with which hwloc takes minutes.
[[nodiscard]] Machine synthetic(std::string_view description);
/// A machine from a file that hwloc wrote (`lstopo machine.xml`). Nothing is bound on it.
/// @throws Error{invalid_config} naming the file if hwloc cannot read it.
[[nodiscard]] Machine read_xml(const std::string& path);

/// The machine as one node where its quota is of fewer cores than it has nodes, each of which would
/// need a thread of its own: the threads then run on every allowed cpu.
[[nodiscard]] Machine within_quota(Machine machine);

/// Threads for each node: explicit `threads_per_node` if not 0; else its allowed physical cores,
/// less `reserve_cores` (of the last nodes; each keeps one), within the quota. `why`
/// says it in words. Never more than kMostThreads in all.
struct ThreadChoice {
  std::vector<std::uint32_t> threads_per_node;
  std::string why;
};
/// @throws Error{invalid_config} if `threads_per_node` makes more.
[[nodiscard]] ThreadChoice choose_threads(const Machine& machine, std::uint32_t threads_per_node,
                                          std::uint32_t reserve_cores);

/// Cores to leave to the trainer where updates overlap it: 1 if there are more than 2.
[[nodiscard]] std::uint32_t default_reserve(const Machine& machine) noexcept;

/// Asks for pages of `memory` (page-aligned, not yet touched) on the node to which the system gives
/// this number, with or without cpus. @return "" or why not, with the call and errno. Does nothing
/// on a made-up machine, nor without known NUMA nodes.
[[nodiscard]] std::string bind_memory_to(const Machine& machine, std::uint32_t os_node,
                                         std::span<std::byte> memory);
/// Binds the calling thread to the node's cpus. @return "" or why not. Nothing on a made-up
/// machine.
[[nodiscard]] std::string bind_this_thread(const Machine& machine, std::uint32_t node);

}  // namespace outboard::topology
