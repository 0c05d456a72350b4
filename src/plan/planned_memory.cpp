// SPDX-License-Identifier: Apache-2.0
// The ledger that the engine will have, worked out from the layout alone.
#include <algorithm>
#include <array>

#include "core/host_layout.hpp"
#include "core/pack_layout.hpp"
#include "core/round_up.hpp"
#include "outboard/error.hpp"
#include "outboard/planning.hpp"
#include "plan/cost_model.hpp"
#include "plan/placement.hpp"
#include "plan/planned_shapes.hpp"

namespace outboard {
namespace {

constexpr std::uint64_t kPageBytes = 4096;  // host memory is mapped in whole pages
using core::kDeviceAlign;
constexpr std::array<const char*, 3> kState = {"master weight", "exp_avg", "exp_avg_sq"};

class Ledger {
 public:
  Ledger(const plan::PlacedModel& placed, std::span<const PlannedParameter> parameters,
         const Config& config)
      : layout_(placed.layout),
        homes_(placed.homes),
        host_room_(placed.host_room),
        parameters_(parameters),
        config_(config) {
    for (const PlannedParameter& p : parameters) ledger_.trainable_elems += p.elems;
  }

  MemoryLedger make() {
    const bool sums = config_.accumulate == Accumulate::host;
    add_host_state();
    add_device_state();
    if (sums) add_host_sums();
    if (sums) add_device_sums();
    add_staging(sums);
    add_scalars();
    return std::move(ledger_);
  }

 private:
  void host(const char* purpose, MemoryPlace place, std::uint32_t node, std::uint64_t bytes) {
    if (bytes == 0) return;
    ledger_.entries.push_back({purpose, place, node, core::round_up(bytes, kPageBytes), nullptr});
  }
  void host_stream(const char* purpose, MemoryPlace place, std::uint32_t node,
                   std::uint64_t stream) {
    const std::uint64_t bytes = layout_.node_elems[node] * sizeof(float);
    if (bytes == 0) return;
    host(purpose, place, node, stream * core::kStreamStagger + bytes);
  }
  void device(const char* purpose, std::uint64_t bytes) {
    if (bytes == 0) return;
    ledger_.entries.push_back({purpose, MemoryPlace::device, 0, bytes, nullptr});
  }

  void add_host_state() {
    for (std::uint32_t node = 0; node < layout_.node_elems.size(); ++node) {
      for (std::size_t i = 0; i < kState.size(); ++i) {
        host_stream(kState[i], state_place(), node, i);
      }
    }
  }
  void add_device_state() {
    std::uint64_t elems = 0;
    std::uint64_t largest_streamed = 0;
    for (std::size_t b = 0; b < homes_.size(); ++b) {
      const std::uint64_t bucket_elems = layout_.buckets[b].padded_elems;
      if (homes_[b] == plan::Home::device_resident) elems += bucket_elems;
      if (homes_[b] != plan::Home::device_streamed) continue;
      largest_streamed = std::max(largest_streamed, bucket_elems);
    }
    for (const char* purpose : kState) device(purpose, elems * sizeof(float));
    const std::uint64_t buffer = core::round_up(largest_streamed * sizeof(float), kDeviceAlign);
    device("stream buffers", plan::kStreamBuffers * kState.size() * buffer);
  }
  /// Of state on the host: what is streamed crosses the link, and an arena is pinned as a whole.
  [[nodiscard]] MemoryPlace state_place() const {
    const bool streams = std::ranges::find(homes_, plan::Home::device_streamed) != homes_.end();
    return streams ? MemoryPlace::host_pinned : MemoryPlace::host_pageable;
  }
  void add_host_sums() {
    for (std::uint32_t node = 0; node < layout_.node_elems.size(); ++node) {
      host_stream("gradient accumulator", MemoryPlace::host_pageable, node, core::kMaxStateStreams);
    }
  }
  void add_device_sums() {
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const plan::SegmentRange range = layout_.parameters[i];
      // All of its buckets have one home.
      if (range.count == 0) continue;
      if (homes_[layout_.segments[range.first].bucket] == plan::Home::host) continue;
      bytes += core::round_up(parameters_[i].elems * sizeof(float), kDeviceAlign);
    }
    device("gradient accumulator", bytes);
  }

  /// The buckets that have a slot, in order.
  [[nodiscard]] std::vector<plan::Bucket> host_buckets() const {
    std::vector<plan::Bucket> buckets;
    for (std::size_t b = 0; b < host_room_.size(); ++b) {
      if (host_room_[b]) buckets.push_back(layout_.buckets[b]);
    }
    return buckets;
  }
  void add_slots(std::span<const plan::Bucket> buckets, MemoryPlace place) {
    std::vector<std::uint64_t> bytes(layout_.node_elems.size(), 0);
    for (const plan::Bucket& bucket : buckets) bytes[bucket.node] += bucket.slot_bytes();
    for (std::uint32_t node = 0; node < bytes.size(); ++node) {
      host("gradient and weight staging", place, node, bytes[node]);
    }
  }
  /// What goes through the ring goes one by one.
  void add_packing(std::span<const plan::Bucket> direct) {
    core::PackNeed need;
    for (const plan::Bucket& b : direct) need.add(b.packed_segments, b.packed_bytes());
    device("packed small tensors", need.bytes());
    device("packed small tensors", need.table_bytes());
  }
  void add_staging(bool sums) {
    const std::vector<plan::Bucket> with_slot = host_buckets();
    const std::size_t buckets = with_slot.size();
    std::uint64_t largest = 0;
    for (const plan::Bucket& bucket : with_slot) {
      largest = std::max<std::uint64_t>(largest, bucket.slot_bytes());
    }
    const std::size_t limit = config_.pinned_slots ? *config_.pinned_slots : buckets;
    std::size_t ring = sums ? plan::sum_ring_slots(config_, buckets) : 0;
    std::size_t direct = buckets;
    if (limit < buckets) {
      if (ring == 0) ring = std::min({core::kRingSlots, limit, buckets});
      direct = limit - std::min(limit, ring);
    }
    if (!sums) add_packing(std::span(with_slot).first(direct));
    add_slots(std::span(with_slot).first(direct), MemoryPlace::host_pinned);
    add_slots(std::span(with_slot).subspan(direct), MemoryPlace::host_pageable);
    host("bounce ring", MemoryPlace::host_pinned, 0, ring * largest);
  }
  /// The gate's, a count of overflowed weights for each parameter, and the digest's sum.
  void add_scalars() {
    const std::uint64_t each = plan::kGateBytesPerParameter + plan::kOverflowCountBytes;
    const std::uint64_t bytes = parameters_.size() * each + sizeof(std::uint64_t);
    host("gate scalars", MemoryPlace::host_pinned, 0, bytes);
    device("gate scalars", bytes);
  }

  const plan::ModelLayout& layout_;
  const std::vector<plan::Home>& homes_;
  const std::vector<bool>& host_room_;
  std::span<const PlannedParameter> parameters_;
  const Config& config_;
  MemoryLedger ledger_;
};

}  // namespace

MemoryLedger plan_memory(std::span<const PlannedParameter> parameters, std::uint32_t nodes,
                         const Config& config) {
  config.validate();
  if (nodes == 0) {
    throw Error(ErrorCode::invalid_argument, "plan_memory(): 0 NUMA nodes; at least 1");
  }
  const std::vector<double> weights(nodes, 1.0);
  const bool sums = config.accumulate == Accumulate::host;
  const plan::PlacedModel placed = plan::place_model(
      plan::shapes_of(parameters, sums), config.bucket_bytes, weights, plan::wish_of(config));
  return Ledger(placed, parameters, config).make();
}

}  // namespace outboard
