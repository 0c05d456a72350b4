// SPDX-License-Identifier: Apache-2.0
// Predictions of `outboard bench predictions`, in virtual time; real time is only reported.
#include "step_bench/predictions.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>
#include <string>

namespace outboard::step_bench {
namespace {

/// As fast to run as it is small: the speeds alone make the step.
PredictedCase smaller(PredictedCase c) {
  c.workload.params /= 100;
  c.workload.forward_us /= 100;
  c.workload.backward_us /= 100;
  c.workload.steps = 3;
  return c;
}

TEST(Predictions, AreWithinOnePercentInVirtualTime) {
  double worst = 0.0;
  for (const PredictedCase& c : predicted_cases()) {
    SCOPED_TRACE(c.shape + ", " + c.way->name + ", " + std::to_string(c.workload.micro_batches));
    const PredictedResult result = predict_and_measure(smaller(c), Clock::virtual_time);
    EXPECT_EQ(result.steps_us.size(), 3U);
    EXPECT_NEAR(result.ratio(), 1.0, 0.01);
    worst = std::max(worst, std::abs(result.ratio() - 1.0));
  }
  std::printf("%zu cases, worst error %.3f %%\n", predicted_cases().size(), 100 * worst);
}

TEST(Predictions, CoverSchedulesPlacementsShapesAndSums) {
  std::set<std::string> shapes, ways, ways_of_sums;
  for (const PredictedCase& c : predicted_cases()) {
    shapes.insert(c.shape);
    (c.workload.micro_batches > 0 ? ways_of_sums : ways).insert(c.way->name);
  }
  EXPECT_GE(predicted_cases().size(), 20U);
  EXPECT_EQ(shapes.size(), 3U);
  EXPECT_EQ(ways.size(), all_ways().size());
  EXPECT_EQ(ways_of_sums, (std::set<std::string>{"exact", "open", "half", "resident"}));
}

/// What virtual time was told is what its recording shows.
TEST(Predictions, MeasureTheMachineThatTheWorkloadSays) {
  for (const PredictedCase& whole : predicted_cases()) {
    const PredictedCase c = smaller(whole);
    SCOPED_TRACE(c.shape + ", " + c.way->name + ", " + std::to_string(c.workload.micro_batches));
    StepTrainer trainer(c.workload, *c.way, sim::Mode::virtual_time);
    trainer.start_recording();
    trainer.turn(2);
    const PlanningMachine told = planning_machine(c.workload);
    const PlanningMachine seen = measured_machine(trainer.recording(), c.workload, *c.way, 2);
    const auto near = [](double expected, double found) {
      EXPECT_NEAR(found, expected, 0.01 * expected);
    };
    near(told.link_down_bytes_per_s, seen.link_down_bytes_per_s);
    near(told.link_up_bytes_per_s, seen.link_up_bytes_per_s);
    near(told.node_elems_per_s.at(0), seen.node_elems_per_s.at(0));
    near(told.device_elems_per_s, seen.device_elems_per_s);
    near(told.norm_elems_per_s, seen.norm_elems_per_s);
    near(told.device_sums_per_s, seen.device_sums_per_s);
    EXPECT_EQ(seen.node_sums_per_s.size(), c.workload.micro_batches > 0 ? 1U : 0U);
    for (const double rate : seen.node_sums_per_s) near(3.0 * told.node_elems_per_s[0], rate);
  }
}

}  // namespace
}  // namespace outboard::step_bench
