// SPDX-License-Identifier: Apache-2.0
#include "memory/staging_pool.hpp"

#include <algorithm>

#include "core/host_layout.hpp"

namespace outboard::memory {
namespace {

constexpr const char* kStaging = "gradient and weight staging";
constexpr const char* kRing = "bounce ring";

std::size_t node_count(const topology::Machine& machine) {
  return machine.nodes.size();
}

/// Bytes of specs[begin, end) on each node.
std::vector<std::size_t> bytes_per_node(std::span<const SlotSpec> specs, std::size_t nodes) {
  std::vector<std::size_t> bytes(nodes, 0);
  for (const SlotSpec& spec : specs) bytes[spec.node] += spec.bytes;
  return bytes;
}

struct Sizes {
  std::size_t bytes = 0, largest = 0;
};
Sizes sizes_of(std::span<const SlotSpec> specs) {
  Sizes sizes;
  for (const SlotSpec& spec : specs) {
    sizes.bytes += spec.bytes;
    sizes.largest = std::max(sizes.largest, spec.bytes);
  }
  return sizes;
}

/// Cuts each node's memory into the slots of `specs`, in order.
void cut_slots(std::span<const SlotSpec> specs, std::vector<std::span<std::byte>> memory,
               bool direct, std::vector<SlotView>& out) {
  for (const SlotSpec& spec : specs) {
    std::span<std::byte>& rest = memory[spec.node];
    out.push_back({rest.first(spec.bytes), direct});
    rest = rest.subspan(spec.bytes);
  }
}

}  // namespace

std::size_t StagingPool::planned_bytes(std::span<const SlotSpec> specs, const Options& options) {
  const auto [bytes, largest] = sizes_of(specs);
  const std::size_t limit = options.pinned_slots.value_or(specs.size());
  std::size_t buffers = 0;
  if (limit < specs.size()) buffers = core::kRingSlots;
  if (options.ring_for_gradients) buffers = core::kGradientRingSlots;
  if (largest <= options.ring_bytes) buffers = 0;
  const RingShape ring{largest, std::min(buffers, specs.size()), limit};
  return bytes + ring.most() * ring.buffer_bytes;
}

void StagingPool::leave_reserved(ReservedCredit& credit, std::span<const SlotSpec> specs,
                                 std::size_t planned_bytes, std::uint32_t ring_node) {
  std::size_t nodes = ring_node + std::size_t{1};
  for (const SlotSpec& spec : specs) nodes = std::max<std::size_t>(nodes, spec.node + 1);
  std::vector<std::size_t> bytes = bytes_per_node(specs, nodes);
  bytes[ring_node] += planned_bytes - sizes_of(specs).bytes;  // the ring
  for (std::uint32_t node = 0; node < nodes; ++node) credit.leave(node, bytes[node]);
}

StagingPool::StagingPool(device::Backend& backend, const topology::Machine& machine,
                         std::span<const SlotSpec> specs, const Options& options,
                         FirstTouch touch) {
  const Means means{backend, machine, touch};
  const auto [bytes, largest] = sizes_of(specs);
  wanted_bytes_ = bytes;
  slots_.reserve(specs.size());
  const std::size_t limit = options.pinned_slots.value_or(specs.size());
  const bool has_ring = largest <= options.ring_bytes;
  std::size_t direct = specs.size();
  if (options.ring_for_gradients && !has_ring) {
    make_ring(means, {largest, std::min(core::kGradientRingSlots, specs.size()), limit});
  }
  if (limit < specs.size() || !pin_prefix(means, specs, direct)) {
    if (ring_.empty() && !has_ring) {
      make_ring(means, {largest, std::min(core::kRingSlots, specs.size()), limit});
    }
    direct = std::min(limit, specs.size());
    direct -= std::min(direct, ring_.size());
    while (direct > 0 && !pin_prefix(means, specs, direct)) direct /= 2;
  }
  direct_slots_ = direct;
  map_pageable(means, specs.subspan(direct));
}

void StagingPool::make_ring(const Means& means, const RingShape& shape) {
  const std::uint32_t node = node_beside(means.backend, means.machine);
  const auto map = [&](std::size_t buffers) {
    return NumaArena(means.machine, node, buffers * shape.buffer_bytes, kRing, means.touch);
  };
  for (std::size_t tries = std::min(shape.buffers, shape.limit); tries > 0; tries /= 2) {
    PinnedRegion region(means.backend, map(tries));
    refused_ = refused_ || !region.pinned();
    if (!region.pinned()) continue;
    pinned_bytes_ += region.bytes().size();
    ring_region_ = std::move(region);
    return cut_ring(ring_region_.bytes(), shape.buffer_bytes, tries);
  }
  ring_pinned_ = false;
  pageable_ring_ = map(shape.most());
  cut_ring(pageable_ring_.bytes(), shape.buffer_bytes, shape.most());
}

void StagingPool::cut_ring(std::span<std::byte> memory, std::size_t buffer_bytes,
                           std::size_t buffers) {
  for (std::size_t i = 0; i < buffers; ++i) {
    ring_.push_back({memory.subspan(i * buffer_bytes, buffer_bytes), true});
  }
}

/// One arena for each node, for its slots.
std::vector<NumaArena> StagingPool::map_slots(const Means& means, std::span<const SlotSpec> specs,
                                              const char* purpose) {
  const auto bytes = bytes_per_node(specs, node_count(means.machine));
  std::vector<NumaArena> arenas;
  for (std::uint32_t node = 0; node < bytes.size(); ++node) {
    arenas.emplace_back(means.machine, node, bytes[node], purpose, means.touch);
  }
  return arenas;
}

void StagingPool::touch_all(const Means& means, std::span<const NumaArena> arenas) {
  std::vector<FreshMemory> fresh;
  for (const NumaArena& arena : arenas) {
    if (!arena.fresh().bytes.empty()) fresh.push_back(arena.fresh());
  }
  // Small pages are never refused here: who lacks them is ended by the kernel.
  if (!fresh.empty()) (void)means.touch(fresh);
}

bool StagingPool::pin_prefix(const Means& means, std::span<const SlotSpec> specs,
                             std::size_t count) {
  std::vector<NumaArena> arenas = map_slots(means, specs.first(count), "staging");
  // Pinning brings pages in as well, on one thread. After a refusal the next may be refused too,
  // and then nobody should have touched what goes back, unless it takes its node's threads to
  // bring it in there.
  const auto unbound = [](const NumaArena& arena) { return !arena.binding_note().empty(); };
  if (!refused_ || std::ranges::any_of(arenas, unbound)) touch_all(means, arenas);
  std::vector<PinnedRegion> regions;
  std::vector<std::span<std::byte>> memory;
  std::size_t total = 0;
  for (NumaArena& arena : arenas) {
    regions.emplace_back(means.backend, std::move(arena));
    refused_ = refused_ || !regions.back().pinned();
    if (!regions.back().pinned()) return false;
    memory.push_back(regions.back().bytes());
    total += regions.back().bytes().size();
  }
  cut_slots(specs.first(count), memory, true, slots_);
  direct_regions_ = std::move(regions);
  pinned_bytes_ += total;
  return true;
}

void StagingPool::map_pageable(const Means& means, std::span<const SlotSpec> specs) {
  pageable_arenas_ = map_slots(means, specs, "pageable staging");
  touch_all(means, pageable_arenas_);
  std::vector<std::span<std::byte>> memory;
  for (const NumaArena& arena : pageable_arenas_) memory.push_back(arena.bytes());
  cut_slots(specs, memory, false, slots_);
}

std::vector<StagingPool::RegionInfo> StagingPool::regions() const {
  std::vector<RegionInfo> infos;
  for (const PinnedRegion& region : direct_regions_) {
    infos.push_back({kStaging, region.node(), true, region.pages(), region.bytes()});
  }
  for (const NumaArena& arena : pageable_arenas_) {
    infos.push_back({kStaging, arena.node(), false, arena.pages(), arena.bytes()});
  }
  const PinnedRegion& ring = ring_region_;
  infos.push_back({kRing, ring.node(), true, ring.pages(), ring.bytes()});
  const NumaArena& pageable = pageable_ring_;
  infos.push_back({kRing, pageable.node(), false, pageable.pages(), pageable.bytes()});
  std::erase_if(infos, [](const RegionInfo& info) { return info.bytes.empty(); });
  return infos;
}

}  // namespace outboard::memory
