// SPDX-License-Identifier: Apache-2.0
#include "plan/simulate.hpp"

#include "plan/simulation.hpp"

namespace outboard::plan {

Prediction simulate(const StepModel& model, const Rates& rates, std::span<const BucketPlace> places,
                    StepSchedule schedule, std::vector<TimelineEntry>* timeline) {
  if (timeline != nullptr) timeline->clear();
  Simulation simulation(model, rates, schedule);
  return simulation.run(places, timeline);
}

StepSchedule step_schedule(Schedule schedule) noexcept {
  switch (schedule) {
    case Schedule::exact:
      return StepSchedule::exact;
    case Schedule::blocking:
      return StepSchedule::blocking;
    case Schedule::open:
      return StepSchedule::open;
    case Schedule::serial:
      return StepSchedule::serial;
  }
  return StepSchedule::exact;
}

}  // namespace outboard::plan
