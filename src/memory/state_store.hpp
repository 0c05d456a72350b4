// SPDX-License-Identifier: Apache-2.0
/// The optimizer state of all host-placed buckets: one arena per NUMA node and stream.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/host_layout.hpp"
#include "memory/numa_arena.hpp"
#include "memory/reserved_credit.hpp"

namespace outboard::memory {

/// The right to read and write one bucket's state until it is destroyed or moved from. Borrowed
/// memory: for host placement a lease costs nothing. Move-only, one at a time for each bucket.
class StateLease {
 public:
  StateLease() = default;
  StateLease(StateLease&&) = default;
  StateLease& operator=(StateLease&&) = default;

  /// Stream `index` (order of the state layout) of the bucket, as elements of T.
  template <class T>
  [[nodiscard]] std::span<T> stream(std::size_t index) const {
    return {reinterpret_cast<T*>(streams_[index].data()), streams_[index].size() / sizeof(T)};
  }

 private:
  friend class StateStore;
  std::array<std::span<std::byte>, core::kMaxStateStreams> streams_;
};

struct StreamSpec {
  std::string purpose;
  std::size_t bytes_per_elem = 0;
};

/// Where one bucket's state lies: `elems` elements from `offset` on in every stream of `node`.
struct StatePlace {
  std::uint32_t node = 0;
  std::uint64_t offset = 0;
  std::uint64_t elems = 0;
};

/// Owns the arenas. Only this class knows their addresses.
class StateStore {
 public:
  StateStore() = default;
  /// Maps and binds; touches no element, unless it lies in reserved huge pages, with `touch`.
  /// `node_elems[i]`: elements on node i. `first_stream`: how many streams of other stores are read
  /// together with these, which are staggered behind them.
  /// @throws Error{out_of_memory} naming the stream and its size.
  StateStore(StateHomes& homes, std::span<const StreamSpec> streams,
             std::span<const std::uint64_t> node_elems, std::size_t first_stream = 0,
             FirstTouch touch = touch_here);

  /// Bytes of the arenas that a store of these would have, sure to lie in reserved huge pages.
  /// Counts them in both `homes` and `credit`, and maps nothing.
  [[nodiscard]] static std::uint64_t reserved_bytes(StateHomes& homes, ReservedCredit& credit,
                                                    std::span<const StreamSpec> streams,
                                                    std::span<const std::uint64_t> node_elems,
                                                    std::size_t first_stream = 0);

  [[nodiscard]] StateLease lease(const StatePlace& place) const;

  struct ArenaInfo {
    std::string purpose;
    const NumaArena& arena;
    std::optional<std::uint32_t> memory_node;  ///< the system's number of it, if it lies there
  };
  [[nodiscard]] std::vector<ArenaInfo> arenas() const;

 private:
  [[nodiscard]] std::size_t lead_bytes(std::size_t stream) const noexcept {
    return (first_stream_ + stream) * core::kStreamStagger;
  }

  std::vector<StreamSpec> streams_;
  std::size_t first_stream_ = 0;
  std::vector<std::uint32_t> memory_nodes_;  // the system's numbers of the machine's
  std::vector<NumaArena> arenas_;            // node-major: arenas_[node * streams + stream]
};

}  // namespace outboard::memory
