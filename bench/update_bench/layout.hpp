// SPDX-License-Identifier: Apache-2.0
/// Which thread updates which elements. Pure values.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace outboard::update_bench {

/// Part of one tensor. `offset` counts elements in the arenas of its node.
struct Piece {
  std::uint64_t offset = 0;
  std::uint64_t elems = 0;
  std::uint64_t first_element = 0;  ///< of the tensor
  std::uint32_t tensor = 0;
};

/// What one thread owns: [begin, end) of its node's arenas, and the pieces in there.
struct Slice {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::vector<Piece> pieces;
};

struct NodeLayout {
  std::uint64_t elems = 0;  ///< of each arena
  std::vector<Slice> slices;
};

/// Where threads may start: on lines of the 16-bit streams, as the engine cuts buckets.
inline constexpr std::uint64_t kCutElems = 64;

/// Tensors lie one after the other, each from a line of 64 bytes on, and are cut evenly among all
/// threads of all nodes, at multiples of `cut_elems` (a multiple of 16).
[[nodiscard]] std::vector<NodeLayout> make_layout(std::span<const std::uint64_t> tensors,
                                                  std::span<const std::uint32_t> threads_per_node,
                                                  std::uint64_t cut_elems);

/// The pieces of a node that meet [begin, end), cut to it and joined where threads part them.
[[nodiscard]] std::vector<Piece> pieces_within(const NodeLayout& node, std::uint64_t begin,
                                               std::uint64_t end);

}  // namespace outboard::update_bench
