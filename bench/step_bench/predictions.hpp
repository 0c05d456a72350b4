// SPDX-License-Identifier: Apache-2.0
/// How well steps are foretold: speeds are measured in a few steps, the planner predicts, and then
/// more steps are timed. Schedules, placements and shapes, with and without sums in the engine.
#pragma once

#include <string>
#include <vector>

#include "outboard/planning.hpp"
#include "step_bench/bench.hpp"

namespace outboard::step_bench {

struct PredictedCase {
  std::string shape;  ///< what its steps are bound by
  Workload workload;
  const Way* way = nullptr;
};

/// Every way on every shape, and with sums of several micro-batches.
[[nodiscard]] std::vector<PredictedCase> predicted_cases();

struct PredictedResult {
  PredictedCase of;
  PlanningMachine machine;  ///< as measured in the steps before
  double predicted_us = 0.0;
  std::vector<double> steps_us;
  [[nodiscard]] double median_us() const;
  /// Predicted over the median step.
  [[nodiscard]] double ratio() const { return predicted_us / median_us(); }
};

/// In virtual time the machine is what the workload says. @throws as measure().
[[nodiscard]] PredictedResult predict_and_measure(const PredictedCase& c, Clock clock);

/// What the machine did in `steps` recorded steps: rates of link, nodes and device. What does not
/// occur there keeps its rate of planning_machine().
[[nodiscard]] PlanningMachine measured_machine(const Timeline& recording, const Workload& workload,
                                               const Way& way, std::uint32_t steps);

}  // namespace outboard::step_bench
