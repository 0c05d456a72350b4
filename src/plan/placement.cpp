// SPDX-License-Identifier: Apache-2.0
#include "plan/placement.hpp"

#include <algorithm>
#include <string>

#include "core/host_layout.hpp"
#include "core/round_up.hpp"
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
std::vector<Home> homes_for_fraction(const ModelLayout& layout, const PlacementWish& wish) {
  if (layout.buckets.empty()) return {};
  StepTimes times;
  for (std::uint32_t p = 0; p < layout.parameters.size(); ++p) times.backward.push_back({0.0, p});
  const Plan found =
      plan(layout, {.node_elems_per_s = {0.0}}, times, wish.memory, fraction_policy(layout, wish));
  std::vector<Home> homes;
  homes.reserve(found.buckets.size());
  for (const BucketPlace& place : found.buckets) homes.push_back(place.home);
  return homes;
}

void require_budget(std::uint64_t needed, std::uint64_t budget, const char* what,
                    const char* remedy) {
  if (needed <= budget) return;
  throw Error(ErrorCode::out_of_memory,
              std::string(what) + " needs " + std::to_string(needed) +
                  " bytes of device memory and Config::device_budget_bytes is " +
                  std::to_string(budget) + ": " + std::to_string(needed - budget) +
                  " bytes short; " + remedy);
}

void require_room_for_all(const ModelLayout& layout, const DeviceMemory& memory) {
  require_budget(padded_elems(layout) * memory.state_bytes_per_elem, memory.budget_bytes,
                 "device-resident optimizer state",
                 "use Placement::fraction, device_streamed or host, or raise the budget");
}

void require_room_to_stream(const ModelLayout& layout, const PlacementWish& wish) {
  std::uint64_t largest = 0;
  for (const Bucket& bucket : layout.buckets) largest = std::max(largest, bucket.padded_elems);
  const std::uint64_t streams =
      (wish.memory.state_bytes_per_elem - wish.sum_bytes_per_elem) / sizeof(float);
  const std::uint64_t buffer = core::round_up(largest * sizeof(float), core::kDeviceAlign);
  require_budget(kStreamBuffers * streams * buffer + padded_elems(layout) * wish.sum_bytes_per_elem,
                 wish.memory.budget_bytes, "streamed optimizer state",
                 "use a smaller Config::bucket_bytes or Placement::host, or raise the budget");
}

}  // namespace

PlacementWish wish_of(const Config& config, std::uint64_t state_bytes_per_elem) {
  const std::uint64_t sum_bytes = config.accumulate == Accumulate::host ? sizeof(float) : 0;
  PlacementWish wish;
  wish.placement = config.placement;
  wish.device_fraction = config.device_fraction;
  wish.memory = {config.device_budget_bytes, state_bytes_per_elem + sum_bytes};
  wish.keep_host_room = config.keep_host_room || config.placement == Placement::automatic;
  wish.sum_bytes_per_elem = sum_bytes;
  return wish;
}

std::size_t sum_ring_slots(const Config& config, std::size_t host_buckets) {
  const std::size_t limit = config.pinned_slots ? *config.pinned_slots : host_buckets;
  return std::min({core::kGradientRingSlots, limit, host_buckets});
}

std::vector<Home> homes_of(const ModelLayout& layout, const PlacementWish& wish) {
  std::vector<Home> homes(layout.buckets.size(), Home::host);
  switch (wish.placement) {
    case Placement::fraction:
      return homes_for_fraction(layout, wish);
    case Placement::device_resident:
      require_room_for_all(layout, wish.memory);
      std::ranges::fill(homes, Home::device_resident);
      break;
    case Placement::device_streamed:
      require_room_to_stream(layout, wish);
      std::ranges::fill(homes, Home::device_streamed);
      break;
    case Placement::host:
    case Placement::automatic:  // at first
      break;
  }
  return homes;
}

PlacedModel place_model(std::span<const ParameterShape> parameters, std::uint64_t bucket_bytes,
                        std::span<const double> node_weights, const PlacementWish& wish) {
  PlacedModel placed;
  placed.layout = make_layout(parameters, bucket_bytes, node_weights);
  placed.homes = homes_of(placed.layout, wish);
  for (const Home home : placed.homes) {
    placed.host_room.push_back(wish.keep_host_room || home != Home::device_resident);
  }
  assign_nodes(placed.layout, node_weights, placed.host_room);
  return placed;
}

}  // namespace outboard::plan
