// SPDX-License-Identifier: Apache-2.0
/// The layout that commit() makes, and where each of its buckets starts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "outboard/config.hpp"
#include "plan/cost_model.hpp"
#include "plan/model_layout.hpp"
#include "plan/plan.hpp"

namespace outboard::plan {

struct PlacedModel {
  ModelLayout layout;  ///< its nodes hold the buckets with room on the host
  std::vector<Home> homes;
  std::vector<bool> host_room;  ///< those not resident, or all
};

/// A placement as numbers.
struct PlacementWish {
  Placement placement = Placement::host;
  double device_fraction = 0.0;  ///< Placement::fraction
  DeviceMemory memory;
  bool keep_host_room = false;
  /// Padded elements of state that is placed already, and what of them is resident: the fraction is
  /// that of all of it together.
  std::uint64_t other_elems = 0, other_resident_elems = 0;
  /// Of `memory.state_bytes_per_elem`: a sum of gradients, which streamed state leaves there.
  std::uint64_t sum_bytes_per_elem = 0;
};

/// With memory for a resident element as the engine's streams need it.
[[nodiscard]] PlacementWish wish_of(const Config& config,
                                    std::uint64_t state_bytes_per_elem = kStateBytesPerElem);

/// Buffers of the ring that gradients pass through on their way to sums on the host
/// (Accumulate::host), with so many buckets there.
[[nodiscard]] std::size_t sum_ring_slots(const Config& config, std::size_t host_buckets);

/// One for each bucket. @throws as plan() for a fraction, and Error{out_of_memory} if all of the
/// state is to be resident, or streamed, and that does not fit the budget.
[[nodiscard]] std::vector<Home> homes_of(const ModelLayout& layout, const PlacementWish& wish);

/// @throws as make_layout() and homes_of().
[[nodiscard]] PlacedModel place_model(std::span<const ParameterShape> parameters,
                                      std::uint64_t bucket_bytes,
                                      std::span<const double> node_weights,
                                      const PlacementWish& wish);

}  // namespace outboard::plan
