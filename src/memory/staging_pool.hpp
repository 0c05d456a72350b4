// SPDX-License-Identifier: Apache-2.0
/// Staging: one slot for each bucket, in which its gradient arrives and its refreshed weight leaves
/// (the two alias: both are of the bucket's dtype). As many slots as can be pinned are; the rest is
/// pageable and is reached through a small pinned ring, on the node that the device is attached to.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "memory/pinned_region.hpp"
#include "memory/reserved_credit.hpp"

namespace outboard::memory {

/// One bucket's staging: on which node, how many bytes.
struct SlotSpec {
  std::uint32_t node = 0;
  std::size_t bytes = 0;
};

struct SlotView {
  std::span<std::byte> bytes;
  bool direct = false;  ///< the device copies to and from it; else through the ring
};

/// Slots in the order of the specs; the first ones are the pinned ones.
class StagingPool {
 public:
  StagingPool() = default;
  struct Options {
    /// Upper limit, ring included; nullopt: all. 0: nothing is pinned, a ring neither.
    std::optional<std::size_t> pinned_slots;
    bool ring_for_gradients = false;  ///< a ring even if every slot is pinned, on top
    std::size_t ring_bytes = 0;  ///< of a buffer of a ring that is there: if no slot is larger,
                                 ///< it serves in place of one of its own
  };
  /// What a pool of these maps, unless the device refuses to pin it: slots, and a ring of its own.
  [[nodiscard]] static std::size_t planned_bytes(std::span<const SlotSpec> specs,
                                                 const Options& options);
  /// Such a pool, of `planned_bytes`, may take reserved huge pages, or leave them. `ring_node`:
  /// node_beside() the device.
  static void leave_reserved(ReservedCredit& credit, std::span<const SlotSpec> specs,
                             std::size_t planned_bytes, std::uint32_t ring_node);
  /// If the device refuses to pin, halves the number until it agrees; ring_pinned() and
  /// direct_slots() say what came out. `touch` brings in all slots, once, before
  /// they are pinned; after a refusal only what could not be bound, the rest comes in as it is
  /// pinned.
  StagingPool(device::Backend& backend, const topology::Machine& machine,
              std::span<const SlotSpec> specs, const Options& options,
              FirstTouch touch = touch_here);

  [[nodiscard]] const SlotView& slot(std::size_t index) const { return slots_[index]; }
  /// Ring buffers, each as large as the largest slot; none if every slot is direct.
  [[nodiscard]] std::span<const SlotView> ring() const noexcept { return ring_; }
  [[nodiscard]] bool ring_pinned() const noexcept { return ring_pinned_; }
  [[nodiscard]] std::size_t direct_slots() const noexcept { return direct_slots_; }
  /// Whether the device has refused to pin as much as Options allow.
  [[nodiscard]] bool refused() const noexcept { return refused_; }
  /// Pinned slots that count towards Options::pinned_slots: a ring on top of them does not.
  [[nodiscard]] std::size_t limited_slots() const noexcept {
    const bool on_top = direct_slots_ == slots_.size();
    return direct_slots_ + (on_top || !ring_pinned_ ? 0 : ring_.size());
  }
  [[nodiscard]] std::size_t slots() const noexcept { return slots_.size(); }
  [[nodiscard]] std::size_t wanted_bytes() const noexcept { return wanted_bytes_; }
  [[nodiscard]] std::size_t pinned_bytes() const noexcept { return pinned_bytes_; }

  struct RegionInfo {
    const char* purpose;
    std::uint32_t node;
    bool pinned;
    PageKind pages;
    std::span<const std::byte> bytes;
  };
  [[nodiscard]] std::vector<RegionInfo> regions() const;

 private:
  struct RingShape {
    std::size_t buffer_bytes = 0;
    std::size_t buffers = 0;  // as many as are of use
    std::size_t limit = 0;    // of pinned ones
    [[nodiscard]] std::size_t most() const noexcept {
      return limit == 0 ? buffers : std::min(buffers, limit);
    }
  };
  /// What making it needs.
  struct Means {
    device::Backend& backend;
    const topology::Machine& machine;
    FirstTouch touch;
  };
  void make_ring(const Means& means, const RingShape& shape);
  void cut_ring(std::span<std::byte> memory, std::size_t buffer_bytes, std::size_t buffers);
  bool pin_prefix(const Means& means, std::span<const SlotSpec> specs, std::size_t count);
  static std::vector<NumaArena> map_slots(const Means& means, std::span<const SlotSpec> specs,
                                          const char* purpose);
  static void touch_all(const Means& means, std::span<const NumaArena> arenas);
  void map_pageable(const Means& means, std::span<const SlotSpec> specs);

  std::vector<PinnedRegion> direct_regions_;  // one per node
  std::vector<NumaArena> pageable_arenas_;    // one per node
  PinnedRegion ring_region_;
  NumaArena pageable_ring_;  // where not even one buffer can be pinned
  std::vector<SlotView> slots_;
  std::vector<SlotView> ring_;
  bool ring_pinned_ = true;
  bool refused_ = false;
  std::size_t direct_slots_ = 0;
  std::size_t wanted_bytes_ = 0;
  std::size_t pinned_bytes_ = 0;
};

}  // namespace outboard::memory
