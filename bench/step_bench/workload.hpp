// SPDX-License-Identifier: Apache-2.0
/// A model whose work takes known times, and the machine that it is trained on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "outboard/planning.hpp"
#include "step_bench/step_bound.hpp"

namespace outboard::step_bench {

/// Layers alike, of one f16 parameter each. By default forward < update < forward + backward.
struct Workload {
  std::uint32_t layers = 64;
  std::uint64_t params = 262'144;  ///< of one layer
  double forward_us = 6'000.0;     ///< of all layers
  double backward_us = 12'000.0;   ///< of all layers
  double link_down_bytes_per_s = 25e9;
  double link_up_bytes_per_s = 25e9;
  double host_params_per_s = 2e9;  ///< updated, all nodes together; virtual time only
  std::uint32_t nodes = 1;         ///< virtual time only
  double device_bytes_per_s = 900e9;
  std::uint64_t bucket_bytes = 0;   ///< of gradients; 0: a bucket for each layer
  std::uint32_t micro_batches = 0;  ///< that the engine adds up; 0: one, and nothing to add
  std::uint32_t steps = 5;          ///< measured, after kWarmSteps
  std::uint64_t seed = 1;           ///< virtual time: the order where none is promised

  [[nodiscard]] std::uint64_t total_params() const { return layers * params; }
  /// Forwards and backwards of a step.
  [[nodiscard]] std::uint32_t passes() const { return micro_batches == 0 ? 1 : micro_batches; }
};
inline constexpr std::uint32_t kWarmSteps = 2;

/// @throws Error{invalid_argument} naming the value, and what is allowed.
void validate(const Workload& workload);

/// Durations of one layer's kernels, as the device is told them.
[[nodiscard]] std::int64_t layer_forward_ns(const Workload& workload);
[[nodiscard]] std::int64_t layer_backward_ns(const Workload& workload);
[[nodiscard]] std::uint64_t bucket_bytes_of(const Workload& workload);

/// The same for the bound and for the planner.
[[nodiscard]] StepCost cost_of(const Workload& workload);
[[nodiscard]] PlannedModel planned_model(const Workload& workload);
[[nodiscard]] PlanningMachine planning_machine(const Workload& workload);

}  // namespace outboard::step_bench
