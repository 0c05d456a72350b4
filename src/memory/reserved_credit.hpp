// SPDX-License-Identifier: Apache-2.0
/// How much of what is about to be mapped is sure to lie in reserved huge pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "memory/state_homes.hpp"
#include "topology/machine.hpp"

namespace outboard::memory {

/// Huge pages, in bytes, that an arena of this place may take: of its own node, or of the machine
/// where nodes are unknown; none on a made-up machine. See reserved_huge_bytes().
[[nodiscard]] std::size_t reserved_for(const topology::Machine& machine, const ArenaPlace& place,
                                       const std::string& root = "");

/// Goes through the arenas of one commit(), in their order, before any of them is mapped.
class ReservedCredit {
 public:
  /// `machine` must outlive this.
  explicit ReservedCredit(const topology::Machine& machine, std::string root = "");

  /// An arena of so many bytes. @return how many of them lie in reserved pages: all of it but what
  /// fills no huge page, or none.
  std::uint64_t take(const ArenaPlace& place, std::size_t bytes);
  /// Memory of a node that may take reserved pages, or may not: later arenas cannot count on them.
  void leave(std::uint32_t node, std::size_t bytes);

 private:
  [[nodiscard]] std::size_t& left_at(const ArenaPlace& place);

  const topology::Machine& machine_;
  const std::string root_;
  std::size_t left_;                              // of all nodes together
  std::map<std::uint32_t, std::size_t> of_node_;  // by the system's number
};

}  // namespace outboard::memory
