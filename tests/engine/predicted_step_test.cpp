// SPDX-License-Identifier: Apache-2.0
// The planner's simulator against the engine itself, on the virtual clock of the software GPU: the
// same model, rates and times give the same step.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "engine/timed_models.hpp"

namespace outboard::testing {
namespace {

constexpr std::uint64_t kMeasuredSteps = 8;
constexpr std::uint64_t kMeasuredMicroBatches = 12;

/// Compute, updates and link are each the slowest for some seeds. So many layers that one bucket
/// more or less in a race of two that end at the same time is less than 1 %.
TimedModel make_model(const PlannedWay& c) {
  const std::uint64_t seed = c.seed;
  TimedModel model;
  model.bucket_elems = std::uint64_t{4096} << (seed % 3);
  const std::uint64_t layers = 40 + mix_bits(seed, 1, 1) % 20;
  const double forward_ns = between(10, 50, seed, 1);
  const double backward_ns = between(20, 90, seed, 2);
  for (std::uint32_t i = 0; i < layers; ++i) {
    model.elems.push_back(seed % 4 == 0 ? 8192 : 1 + mix_bits(seed, i, 9) % 12'000);
    const auto n = static_cast<double>(model.elems.back());
    const double uneven = seed % 4 == 0 ? 1.0 : between(0.5, 1.5, seed, 100 + i);
    model.times.forward.push_back({std::round(n * forward_ns * uneven) * 1e-3, i});
    model.times.backward.push_back({std::round(n * backward_ns * uneven) * 1e-3, i});
  }
  std::ranges::reverse(model.times.backward);
  model.rates.link_down_bytes_per_s = 2e9 / between(5, 60, seed, 3);
  model.rates.link_up_bytes_per_s = 2e9 / between(5, 60, seed, 4);
  const std::uint64_t nodes = 1 + seed % 2;
  for (std::uint64_t n = 0; n < nodes; ++n) {
    model.rates.node_elems_per_s.push_back(
        1e9 / (between(10, 70, seed, 5 + n) * static_cast<double>(nodes)));
  }
  model.rates.copy_us = seed % 3 == 0 ? 0.0 : 2.0;
  return model;
}

std::vector<PlannedWay> cases_of_trainer() {
  std::vector<PlannedWay> cases;
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    cases.push_back({seed, Placement::host, Schedule::exact});
    cases.push_back({seed, Placement::host, Schedule::blocking});
    cases.push_back({seed, Placement::host, Schedule::open});
    cases.push_back({seed, Placement::host, Schedule::serial});
    cases.push_back({seed, Placement::device_resident, Schedule::exact});
    cases.push_back({seed, Placement::device_resident, Schedule::blocking});
    cases.push_back({seed, Placement::fraction, Schedule::exact});
    cases.push_back({seed, Placement::fraction, Schedule::blocking});
    cases.push_back({seed, Placement::device_resident, Schedule::open});
    cases.push_back({seed, Placement::device_streamed, Schedule::exact});
    cases.push_back({seed, Placement::device_streamed, Schedule::blocking});
    cases.push_back({seed, Placement::device_streamed, Schedule::serial});
    cases.push_back({seed, Placement::device_streamed, Schedule::open});
  }
  return cases;
}

std::vector<PlannedWay> cases_of_sums() {
  std::vector<PlannedWay> cases;
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    for (const std::uint32_t micro_batches : {1U, 2U, 4U, 7U}) {
      cases.push_back({seed, Placement::host, Schedule::exact, micro_batches});
      cases.push_back({seed, Placement::device_resident, Schedule::exact, micro_batches});
      cases.push_back({seed, Placement::fraction, Schedule::exact, micro_batches});
      cases.push_back({seed, Placement::device_streamed, Schedule::exact, micro_batches});
      if (seed % 2 == micro_batches % 2) continue;
      cases.push_back({seed, Placement::host, Schedule::blocking, micro_batches});
      cases.push_back({seed, Placement::host, Schedule::serial, micro_batches});
      cases.push_back({seed, Placement::host, Schedule::open, micro_batches});
      cases.push_back({seed, Placement::fraction, Schedule::open, micro_batches});
      cases.push_back({seed, Placement::device_resident, Schedule::open, micro_batches});
    }
  }
  return cases;
}

// The mean: the software GPU draws lots which of two waiting copies goes first.
void expect_close(const std::vector<PlannedWay>& cases) {
  double worst = 0.0;
  for (const PlannedWay& c : cases) {
    TimedModel model = make_model(c);
    if (c.placement != Placement::host) {
      model.rates.device_elems_per_s = 1e9 / between(1, 10, c.seed, 8);
      model.rates.norm_elems_per_s = model.rates.device_elems_per_s * kUpdateBytes / kNormBytes;
      model.rates.device_sums_per_s = model.rates.device_elems_per_s * kUpdateBytes / kSumBytes;
    }
    SCOPED_TRACE("seed " + std::to_string(c.seed) + ", placement " +
                 std::to_string(static_cast<int>(c.placement)) + ", " + name_of(c.schedule) + ", " +
                 std::to_string(c.micro_batches) + " micro-batches");
    const std::uint64_t steps =
        c.micro_batches > 1 ? 1 + kMeasuredMicroBatches / c.micro_batches : kMeasuredSteps;
    const double measured = measure_steps(model, c, {.timed = steps}).mean_us;
    const double predicted = predicted_us(model, c);
    EXPECT_NEAR(predicted, measured, 0.01 * measured);
    worst = std::max(worst, std::abs(predicted / measured - 1.0));
  }
  std::printf("%zu configurations, worst error %.3f %%\n", cases.size(), 100 * worst);
}

TEST(PredictedStep, IsTheEnginesOwnWithinOnePercent) {
  expect_close(cases_of_trainer());
}

TEST(PredictedStep, WithSumsInTheEngineToo) {
  expect_close(cases_of_sums());
}

}  // namespace
}  // namespace outboard::testing
