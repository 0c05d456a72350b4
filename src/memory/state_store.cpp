// SPDX-License-Identifier: Apache-2.0
#include "memory/state_store.hpp"

#include <cstring>

namespace outboard::memory {

StateStore::StateStore(StateHomes& homes, std::span<const StreamSpec> streams,
                       std::span<const std::uint64_t> node_elems, std::size_t first_stream,
                       FirstTouch touch)
    : streams_(streams.begin(), streams.end()), first_stream_(first_stream) {
  for (const topology::MemoryNode& memory : homes.machine().memory_nodes) {
    memory_nodes_.push_back(memory.os_index);
  }
  arenas_.reserve(streams.size() * node_elems.size());
  for (std::uint32_t node = 0; node < node_elems.size(); ++node) {
    for (std::size_t i = 0; i < streams.size(); ++i) {
      const std::size_t bytes = node_elems[node] * streams[i].bytes_per_elem;
      const std::size_t lead = bytes == 0 ? 0 : lead_bytes(i);
      const NumaArena& arena =
          arenas_.emplace_back(homes.machine(), homes.place(node, lead + bytes), lead + bytes,
                               streams[i].purpose.c_str(), touch);
      // Whoever touches the elements leaves these pages out; what is counted is to be there.
      if (lead > 0) std::memset(arena.bytes().data(), 0, lead);
    }
  }
}

std::uint64_t StateStore::reserved_bytes(StateHomes& homes, ReservedCredit& credit,
                                         std::span<const StreamSpec> streams,
                                         std::span<const std::uint64_t> node_elems,
                                         std::size_t first_stream) {
  std::uint64_t sum = 0;
  for (std::uint32_t node = 0; node < node_elems.size(); ++node) {
    for (std::size_t i = 0; i < streams.size() && node_elems[node] > 0; ++i) {
      const std::size_t bytes =
          (first_stream + i) * core::kStreamStagger + node_elems[node] * streams[i].bytes_per_elem;
      sum += credit.take(homes.place(node, bytes), bytes);
    }
  }
  return sum;
}

StateLease StateStore::lease(const StatePlace& place) const {
  StateLease lease;
  if (place.elems == 0) return lease;  // its node may have no arena
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    const std::size_t size = streams_[i].bytes_per_elem;
    lease.streams_[i] = arenas_[place.node * streams_.size() + i].bytes().subspan(
        lead_bytes(i) + place.offset * size, place.elems * size);
  }
  return lease;
}

std::vector<StateStore::ArenaInfo> StateStore::arenas() const {
  std::vector<ArenaInfo> infos;
  for (std::size_t i = 0; i < arenas_.size(); ++i) {
    std::optional<std::uint32_t> memory_node;
    if (const auto beside = arenas_[i].place().memory_node) memory_node = memory_nodes_[*beside];
    infos.push_back({streams_[i % streams_.size()].purpose, arenas_[i], memory_node});
  }
  return infos;
}

}  // namespace outboard::memory
