// SPDX-License-Identifier: Apache-2.0
/// How much of the state each NUMA node takes: by its rate, as far as its memory goes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace outboard::plan {

struct NodeShares {
  std::vector<double> weights;  ///< for interleave(); 0 where there is no room for a bucket
  std::vector<bool> limited;    ///< whose memory is too small for what its rate asks for
  bool operator==(const NodeShares&) const = default;
};

/// What is to be dealt out.
struct ShareDemand {
  std::uint64_t elems = 0;
  std::uint64_t largest_bucket_elems = 0;  ///< interleave() exceeds a share by up to one
};

/// Shares in proportion to `rates`. A node with room for less than its share gets what it has room
/// for, and the others the rest in proportion to theirs. If all together have too little room their
/// rates alone decide, and nobody is limited. `room_elems[i]`: UINT64_MAX where nothing is known.
/// @throws Error{invalid_argument} unless there is one room for each rate.
[[nodiscard]] NodeShares node_shares(std::span<const double> rates,
                                     std::span<const std::uint64_t> room_elems,
                                     const ShareDemand& demand);

}  // namespace outboard::plan
