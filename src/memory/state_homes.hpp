// SPDX-License-Identifier: Apache-2.0
/// Which NUMA node holds an arena of state: the one whose cores update it, or, where that one lacks
/// room, memory without cpus beside it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "topology/machine.hpp"

namespace outboard::memory {

/// Where an arena lies.
struct ArenaPlace {
  ArenaPlace() = default;
  ArenaPlace(std::uint32_t its_node) : node(its_node) {}  // NOLINT(google-explicit-constructor)
  ArenaPlace(std::uint32_t its_node, std::uint32_t beside) : node(its_node), memory_node(beside) {}

  std::uint32_t node = 0;                      ///< index into Machine::nodes: who works on it
  std::optional<std::uint32_t> memory_node{};  ///< index into Machine::memory_nodes, if not there
};

/// The number that the system gives the node which holds it.
[[nodiscard]] std::uint32_t os_node_of(const topology::Machine& machine, const ArenaPlace& place);

/// Deals out the room of one commit(), before anything of it is touched.
class StateHomes {
 public:
  /// Reads what is free now, if the machine has memory nodes. `machine` must outlive this.
  explicit StateHomes(const topology::Machine& machine, const std::string& root = "");

  /// So much will lie on the node itself whatever happens: staging, which its workers share with
  /// the device.
  void keep(std::uint32_t node, std::size_t bytes);
  /// The node itself if it has room; else the first memory node nearest to it that has; else the
  /// node itself, and the kernel finds room. Counts it there.
  [[nodiscard]] ArenaPlace place(std::uint32_t node, std::size_t bytes);
  [[nodiscard]] const topology::Machine& machine() const noexcept { return machine_; }

 private:
  const topology::Machine& machine_;
  std::vector<std::uint64_t> node_free_;    // empty without memory nodes
  std::vector<std::uint64_t> memory_free_;  // by memory node
};

}  // namespace outboard::memory
