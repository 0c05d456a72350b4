// SPDX-License-Identifier: Apache-2.0
/// Host memory registered with a device, so that copies across the link run asynchronously.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "device/backend.hpp"
#include "memory/numa_arena.hpp"

namespace outboard::memory {

/// Index in Machine::nodes of the node that the device is attached to; 0 where that is unknown or
/// none of them.
[[nodiscard]] std::uint32_t node_beside(const device::Backend& backend,
                                        const topology::Machine& machine) noexcept;

/// An arena that its device has registered. Move-only; unregisters before it unmaps.
class PinnedRegion {
 public:
  PinnedRegion() = default;
  /// Registers all of `arena`. If the device refuses, the region stays pageable: see pinned().
  /// `backend` must outlive the region.
  PinnedRegion(device::Backend& backend, NumaArena arena);
  ~PinnedRegion();
  PinnedRegion(PinnedRegion&& other) noexcept;
  PinnedRegion& operator=(PinnedRegion&& other) noexcept;

  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return arena_.bytes(); }
  [[nodiscard]] std::uint32_t node() const noexcept { return arena_.node(); }
  [[nodiscard]] PageKind pages() const noexcept { return arena_.pages(); }
  [[nodiscard]] bool pinned() const noexcept { return pinned_; }

 private:
  void unregister() noexcept;
  device::Backend* backend_ = nullptr;
  NumaArena arena_;
  bool pinned_ = false;
};

}  // namespace outboard::memory
