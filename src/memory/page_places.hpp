// SPDX-License-Identifier: Apache-2.0
/// Where pages came to lie: a binding is a wish, and a full node's neighbours help out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace outboard::memory {

struct PageSample {
  std::size_t known = 0;      ///< pages of which the kernel says where they are
  std::size_t elsewhere = 0;  ///< of those: on another node than they should be
};

/// Asks the kernel about at most 256 pages, evenly spread over `memory`. Pages that nobody has
/// touched are unknown; so are all where it does not answer (a container without move_pages).
[[nodiscard]] PageSample sample_pages(std::span<const std::byte> memory,
                                      std::uint32_t os_node) noexcept;

/// What lies astray of the memory that is meant for one node.
struct NodePlaces {
  std::uint32_t os_node = 0;
  std::uint64_t bytes = 0;  ///< of the ranges of which something is known
  double elsewhere_bytes = 0.0;

  /// Samples one range more.
  void add(std::span<const std::byte> memory);
};

/// "" where less than a hundredth of each node's memory lies elsewhere; else how much, why, and
/// what helps.
[[nodiscard]] std::string describe_strays(std::span<const NodePlaces> nodes);

}  // namespace outboard::memory
