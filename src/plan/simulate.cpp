// SPDX-License-Identifier: Apache-2.0
#include "plan/simulate.hpp"

#include "plan/simulation.hpp"

namespace outboard::plan {

const char* to_string(OpKind kind) noexcept {
  switch (kind) {
    case OpKind::backward:
      return "backward";
    case OpKind::forward:
      return "forward";
    case OpKind::norm:
      return "norm";
    case OpKind::gradient:
      return "gradient";
    case OpKind::gate:
      return "gate";
    case OpKind::update:
      return "update";
    case OpKind::weight:
      return "weight";
    case OpKind::state_in:
      return "state in";
    case OpKind::state_out:
      return "state out";
  }
  return "unknown";
}

Prediction simulate(const StepModel& model, const Rates& rates, std::span<const BucketPlace> places,
                    StepSchedule schedule, std::vector<TimelineEntry>* timeline) {
  if (timeline != nullptr) timeline->clear();
  Simulation simulation(model, rates, schedule);
  return simulation.run(places, timeline);
}

}  // namespace outboard::plan
