// SPDX-License-Identifier: Apache-2.0
#include "memory/staging_pool.hpp"

#include <algorithm>

#include "core/host_layout.hpp"

namespace outboard::memory {
namespace {

std::size_t node_count(const topology::Machine& machine) {
  return machine.nodes.size();
}

/// Bytes of specs[begin, end) on each node.
std::vector<std::size_t> bytes_per_node(std::span<const SlotSpec> specs, std::size_t nodes) {
  std::vector<std::size_t> bytes(nodes, 0);
  for (const SlotSpec& spec : specs) bytes[spec.node] += spec.bytes;
  return bytes;
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

StagingPool::StagingPool(device::Backend& backend, const topology::Machine& machine,
                         std::span<const SlotSpec> specs, const Options& options) {
  std::size_t largest = 0;
  for (const SlotSpec& spec : specs) {
    wanted_bytes_ += spec.bytes;
    largest = std::max(largest, spec.bytes);
  }
  slots_.reserve(specs.size());
  const std::size_t limit = options.pinned_slots ? *options.pinned_slots : specs.size();
  std::size_t direct = specs.size();
  if (options.ring_for_gradients) {
    make_ring(backend, machine, largest, std::min({core::kGradientRingSlots, limit, specs.size()}));
  }
  if (limit < specs.size() || !pin_prefix(backend, machine, specs, direct)) {
    if (ring_.empty()) {
      make_ring(backend, machine, largest, std::min({core::kRingSlots, limit, specs.size()}));
    }
    direct = std::min(limit, specs.size());
    direct -= std::min(direct, ring_.size());
    while (direct > 0 && !pin_prefix(backend, machine, specs, direct)) direct /= 2;
  }
  direct_slots_ = direct;
  map_pageable(machine, specs.subspan(direct));
}

void StagingPool::make_ring(device::Backend& backend, const topology::Machine& machine,
                            std::size_t slot_bytes, std::size_t count) {
  for (std::size_t tries = count;; tries /= 2) {
    const bool last_resort = tries == 0;  // not even one slot can be pinned: a pageable ring
    const std::size_t slots = last_resort ? count : tries;
    PinnedRegion region(backend, NumaArena(machine, 0, slots * slot_bytes, "bounce ring"));
    if (!region.pinned() && !last_resort) continue;
    ring_pinned_ = region.pinned();
    if (ring_pinned_) pinned_bytes_ += region.bytes().size();
    ring_region_ = std::move(region);
    for (std::size_t i = 0; i < slots; ++i) {
      ring_.push_back({ring_region_.bytes().subspan(i * slot_bytes, slot_bytes), true});
    }
    return;
  }
}

bool StagingPool::pin_prefix(device::Backend& backend, const topology::Machine& machine,
                             std::span<const SlotSpec> specs, std::size_t count) {
  const auto bytes = bytes_per_node(specs.first(count), node_count(machine));
  std::vector<PinnedRegion> regions;
  std::vector<std::span<std::byte>> memory;
  std::size_t total = 0;
  for (std::uint32_t node = 0; node < bytes.size(); ++node) {
    regions.emplace_back(backend, NumaArena(machine, node, bytes[node], "staging"));
    if (bytes[node] > 0 && !regions.back().pinned()) return false;
    memory.push_back(regions.back().bytes());
    total += regions.back().bytes().size();
  }
  cut_slots(specs.first(count), memory, true, slots_);
  direct_regions_ = std::move(regions);
  pinned_bytes_ += total;
  return true;
}

void StagingPool::map_pageable(const topology::Machine& machine, std::span<const SlotSpec> specs) {
  const auto bytes = bytes_per_node(specs, node_count(machine));
  std::vector<std::span<std::byte>> memory;
  for (std::uint32_t node = 0; node < bytes.size(); ++node) {
    pageable_arenas_.emplace_back(machine, node, bytes[node], "pageable staging");
    memory.push_back(pageable_arenas_.back().bytes());
  }
  cut_slots(specs, memory, false, slots_);
}

std::vector<StagingPool::RegionInfo> StagingPool::regions() const {
  std::vector<RegionInfo> infos;
  for (const PinnedRegion& region : direct_regions_) {
    infos.push_back({"gradient and weight staging", region.node(), true, region.bytes()});
  }
  for (const NumaArena& arena : pageable_arenas_) {
    infos.push_back({"gradient and weight staging", arena.node(), false, arena.bytes()});
  }
  infos.push_back({"bounce ring", ring_region_.node(), ring_pinned_, ring_region_.bytes()});
  std::erase_if(infos, [](const RegionInfo& info) { return info.bytes.empty(); });
  return infos;
}

}  // namespace outboard::memory
