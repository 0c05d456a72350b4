// SPDX-License-Identifier: Apache-2.0
/// Decides where each bucket's state lives and where it is updated, by simulating steps.
#pragma once

#include <cstdint>
#include <span>

#include "plan/cost_model.hpp"
#include "plan/model_layout.hpp"
#include "plan/plan.hpp"
#include "plan/simulate.hpp"

namespace outboard::plan {

enum class PolicyKind : std::uint8_t {
  host_only,  ///< every bucket on the host
  fraction,   ///< a given share of the state resident on the device
  streamed,   ///< every bucket sent through the device
  automatic,  ///< the fastest that fits the budget; never slower than host_only, as simulated
};

/// The nearest to a fraction that whole buckets come must be within this.
inline constexpr double kFractionTolerance = 0.02;

struct Policy {
  PolicyKind kind = PolicyKind::automatic;
  double device_fraction = 0.0;  ///< of the state's bytes, in [0, 1]; PolicyKind::fraction
  bool streaming = true;         ///< automatic: may choose Home::device_streamed
  StepSchedule schedule = StepSchedule::exact;
  double fraction_tolerance = kFractionTolerance;
};

/// Pure: the same arguments give the same plan. Simulates at most a fixed number of events, however
/// large the model, plus a few whole steps. Nodes are interleaved by rate over the buckets whose
/// state is on the host.
/// @throws Error{invalid_argument} for rates, times or a fraction that make no sense,
/// Error{invalid_config} if whole buckets cannot come within the policy's tolerance of the
/// fraction, Error{out_of_memory} if the fraction, or the stream buffers, need more than the
/// budget.
[[nodiscard]] Plan plan(const ModelLayout& layout, const Rates& rates, const StepTimes& times,
                        const DeviceMemory& memory, const Policy& policy);

/// Gives the buckets whose state is on the host their nodes, by rate.
void place_on_nodes(const StepModel& model, const Rates& rates, std::span<BucketPlace> places);

/// Bytes of state and stream buffers that `places` take on the device.
[[nodiscard]] std::uint64_t device_state_bytes(const StepModel& model,
                                               std::span<const BucketPlace> places);

}  // namespace outboard::plan
