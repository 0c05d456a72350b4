// SPDX-License-Identifier: Apache-2.0
#include "memory/pinned_region.hpp"

#include <utility>

namespace outboard::memory {

std::uint32_t node_beside(const device::Backend& backend,
                          const topology::Machine& machine) noexcept {
  const std::optional<std::uint32_t> os_node = backend.numa_node();
  for (std::uint32_t node = 0; os_node && node < machine.nodes.size(); ++node) {
    if (machine.nodes[node].os_index == *os_node) return node;
  }
  return 0;
}

PinnedRegion::PinnedRegion(device::Backend& backend, NumaArena arena)
    : backend_(&backend), arena_(std::move(arena)) {
  pinned_ = arena_.bytes().empty() || backend.register_host(arena_.bytes());
}

PinnedRegion::~PinnedRegion() {
  unregister();
}

PinnedRegion::PinnedRegion(PinnedRegion&& other) noexcept
    : backend_(std::exchange(other.backend_, nullptr)),
      arena_(std::move(other.arena_)),
      pinned_(std::exchange(other.pinned_, false)) {}

PinnedRegion& PinnedRegion::operator=(PinnedRegion&& other) noexcept {
  if (this != &other) {
    unregister();
    backend_ = std::exchange(other.backend_, nullptr);
    arena_ = std::move(other.arena_);
    pinned_ = std::exchange(other.pinned_, false);
  }
  return *this;
}

void PinnedRegion::unregister() noexcept {
  if (pinned_ && !arena_.bytes().empty()) backend_->unregister_host(arena_.bytes());
  pinned_ = false;
}

}  // namespace outboard::memory
