// SPDX-License-Identifier: Apache-2.0
#include "plan/placement.hpp"

#include <algorithm>
#include <string>

#include "core/host_layout.hpp"
#include "outboard/error.hpp"
#include "plan/planner.hpp"

namespace outboard::plan {
namespace {

std::uint64_t padded_elems(const ModelLayout& layout) {
  std::uint64_t elems = 0;
  for (const Bucket& bucket : layout.buckets) elems += bucket.padded_elems;
  return elems;
}

/// The share of the layout's own buckets that brings all of the state to the fraction, or as near
/// to it as they can.
Policy fraction_policy(const ModelLayout& layout, const PlacementWish& wish) {
  Policy policy{.kind = PolicyKind::fraction, .device_fraction = wish.device_fraction};
  if (wish.other_elems == 0) return policy;
  const auto own = static_cast<double>(padded_elems(layout));
  const double all = own + static_cast<double>(wish.other_elems);
  const double wanted = wish.device_fraction * all - static_cast<double>(wish.other_resident_elems);
  policy.device_fraction = std::clamp(wanted / own, 0.0, 1.0);
  policy.fraction_tolerance = kFractionTolerance * all / own;
  return policy;
}

/// A fraction is met whatever the speeds and the trainer's times.
std::vector<bool> resident_for_fraction(const ModelLayout& layout, const PlacementWish& wish) {
  if (layout.buckets.empty()) return {};
  StepTimes times;
  for (std::uint32_t p = 0; p < layout.parameters.size(); ++p) times.backward.push_back({0.0, p});
  const Plan found =
      plan(layout, {.node_elems_per_s = {0.0}}, times, wish.memory, fraction_policy(layout, wish));
  std::vector<bool> resident;
  resident.reserve(found.buckets.size());
  for (const BucketPlace& place : found.buckets) {
    resident.push_back(place.home == Home::device_resident);
  }
  return resident;
}

void require_room_for_all(const ModelLayout& layout, const DeviceMemory& memory) {
  const std::uint64_t needed = padded_elems(layout) * memory.state_bytes_per_elem;
  if (needed <= memory.budget_bytes) return;
  throw Error(ErrorCode::out_of_memory,
              "device-resident optimizer state needs " + std::to_string(needed) +
                  " bytes of device memory and Config::device_budget_bytes is " +
                  std::to_string(memory.budget_bytes) + ": " +
                  std::to_string(needed - memory.budget_bytes) +
                  " bytes short; use Placement::fraction or Placement::host, or raise the budget");
}

}  // namespace

PlacementWish wish_of(const Config& config, std::uint64_t state_bytes_per_elem) {
  if (config.accumulate == Accumulate::host) state_bytes_per_elem += sizeof(float);  // the sums
  return {config.placement,
          config.device_fraction,
          {config.device_budget_bytes, state_bytes_per_elem},
          config.keep_host_room || config.placement == Placement::automatic};
}

std::size_t sum_ring_slots(const Config& config, std::size_t host_buckets) {
  const std::size_t limit = config.pinned_slots ? *config.pinned_slots : host_buckets;
  return std::min({core::kGradientRingSlots, limit, host_buckets});
}

std::vector<bool> resident_buckets(const ModelLayout& layout, const PlacementWish& wish) {
  std::vector<bool> resident(layout.buckets.size(), false);
  switch (wish.placement) {
    case Placement::fraction:
      return resident_for_fraction(layout, wish);
    case Placement::device_resident:
      require_room_for_all(layout, wish.memory);
      resident.flip();
      break;
    case Placement::host:
    case Placement::automatic:  // at first
      break;
  }
  return resident;
}

PlacedModel place_model(std::span<const ParameterShape> parameters, std::uint64_t bucket_bytes,
                        std::span<const double> node_weights, const PlacementWish& wish) {
  PlacedModel placed;
  placed.layout = make_layout(parameters, bucket_bytes, node_weights);
  placed.resident = resident_buckets(placed.layout, wish);
  placed.host_room = placed.resident;
  placed.host_room.flip();
  if (wish.keep_host_room) placed.host_room.assign(placed.resident.size(), true);
  assign_nodes(placed.layout, node_weights, placed.host_room);
  return placed;
}

}  // namespace outboard::plan
