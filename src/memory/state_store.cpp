// SPDX-License-Identifier: Apache-2.0
#include "memory/state_store.hpp"

namespace outboard::memory {

StateStore::StateStore(const topology::Machine& machine, std::span<const StreamSpec> streams,
                       std::span<const std::uint64_t> node_elems)
    : streams_(streams.begin(), streams.end()) {
  arenas_.reserve(streams.size() * node_elems.size());
  for (std::uint32_t node = 0; node < node_elems.size(); ++node) {
    for (const StreamSpec& stream : streams) {
      arenas_.emplace_back(machine, node, node_elems[node] * stream.bytes_per_elem,
                           stream.purpose.c_str());
    }
  }
}

StateLease StateStore::lease(const StatePlace& place) const {
  StateLease lease;
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    const std::size_t size = streams_[i].bytes_per_elem;
    lease.streams_[i] = arenas_[place.node * streams_.size() + i].bytes().subspan(
        place.offset * size, place.elems * size);
  }
  return lease;
}

std::vector<StateStore::ArenaInfo> StateStore::arenas() const {
  std::vector<ArenaInfo> infos;
  for (std::size_t i = 0; i < arenas_.size(); ++i) {
    infos.push_back({streams_[i % streams_.size()].purpose, arenas_[i]});
  }
  return infos;
}

}  // namespace outboard::memory
