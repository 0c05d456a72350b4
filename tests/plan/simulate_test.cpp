// SPDX-License-Identifier: Apache-2.0
// The simulated step against the closed formulas, where these are exact, and its own accounts.
#include "plan/simulate.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>
#include <vector>

#include "core/pack_layout.hpp"
#include "outboard/error.hpp"
#include "plan/random_steps.hpp"
#include "support/expect_error.hpp"

namespace outboard::plan {
namespace {

using testing::Draw;
using testing::draw_step;
using testing::Formula;
using testing::RandomStep;
using testing::Shape;

constexpr double kRounding = 1e-9;

Prediction run(const RandomStep& step, StepSchedule schedule,
               std::vector<TimelineEntry>* timeline = nullptr) {
  return simulate(make_step_model(step.layout, step.times), step.rates, step.places, schedule,
                  timeline);
}

RandomStep random_step(std::uint64_t seed, Shape shape) {
  Draw draw(seed * 977 + 5);
  const std::size_t count = testing::draw_count(draw, shape);
  return draw_step(seed, shape, count, std::uint64_t{8192} << draw.below(5));
}

TEST(Simulate, SerialIsTheSumOfItsParts) {
  for (const Shape shape : testing::kShapes) {
    for (std::uint64_t seed = 0; seed < 60; ++seed) {
      SCOPED_TRACE("shape " + std::to_string(static_cast<int>(shape)) + " seed " +
                   std::to_string(seed));
      const RandomStep step = random_step(seed, shape);
      const Formula formula = testing::work_out(step);
      const Prediction serial = run(step, StepSchedule::serial);
      // The gate's copy goes between copies of gradients, or after them; weights are spread while
      // others are on their way, or after them.
      EXPECT_LE(serial.step_us, (formula.serial_us() + formula.unpack_us) * (1 + kRounding));
      EXPECT_GE(serial.step_us, formula.serial_us() * (1 - kRounding) - formula.gate_us);
    }
  }
}

TEST(Simulate, SerialWaitsForUpdatesFirstAndThenForWeights) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const RandomStep step = random_step(seed, Shape::even);
    const Prediction serial = run(step, StepSchedule::serial);
    const double busiest = *std::ranges::max_element(serial.node_us);
    EXPECT_NEAR(serial.exposed.update_us, busiest, 1e-9 * serial.step_us);
    EXPECT_NEAR(serial.exposed.weights_us, serial.link_up_us, 1e-9 * serial.step_us);
  }
}

TEST(Simulate, ExactKeepsItsBoundOnEveryShape) {
  double worst = 0.0;
  std::size_t count = 0;
  for (const Shape shape : testing::kShapes) {
    for (std::uint64_t seed = 0; seed < 240; ++seed) {
      SCOPED_TRACE("shape " + std::to_string(static_cast<int>(shape)) + " seed " +
                   std::to_string(seed));
      const RandomStep step = random_step(seed, shape);
      const Formula formula = testing::work_out(step);
      const Prediction exact = run(step, StepSchedule::exact);
      worst = std::max(worst, exact.step_us / formula.exact_us());
      ++count;
      EXPECT_LE(exact.step_us, formula.exact_us() * 1.01);
      EXPECT_GE(exact.step_us, (exact.forward_us + exact.backward_us) * (1 - kRounding));
    }
  }
  std::printf("%zu layouts, worst exact / bound %.6f\n", count, worst);
  EXPECT_GE(count, 1000u);
}

/// Where everything has arrived when the gate opens, since backward ends with a long kernel that
/// completes no gradient, and no weight waits to be spread.
TEST(Simulate, ExactTakesWhatItsFormulaSaysWhereNoCopyIsOutstanding) {
  for (const Shape shape : testing::kShapes) {
    for (std::uint64_t seed = 0; seed < 240; ++seed) {
      SCOPED_TRACE("shape " + std::to_string(static_cast<int>(shape)) + " seed " +
                   std::to_string(seed));
      RandomStep step = random_step(seed, shape);
      step.rates.kernel_us = step.rates.norm_elems_per_s = 0.0;
      step.times.backward.push_back({testing::work_out(step).copies_end_us, kNoParameter});
      const Formula formula = testing::work_out(step);
      ASSERT_FALSE(formula.copies_outstanding());
      const Prediction exact = run(step, StepSchedule::exact);
      EXPECT_NEAR(exact.step_us, formula.exact_us(), formula.exact_us() * kRounding);
    }
  }
}

TEST(Simulate, OpenHidesAllButOneBucketWhenBucketsAreEven) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RandomStep step = random_step(seed, Shape::even);
    step.rates.norm_elems_per_s = 0.0;
    step.rates.kernel_us = 0.0;
    const Formula formula = testing::work_out(step);
    const Prediction open = run(step, StepSchedule::open);
    // Each bucket's scalars are one more copy.
    const auto count = static_cast<double>(step.layout.buckets.size());
    const double scalars_us = count * step.rates.copy_us + formula.gate_us;
    const double slowest = std::max({formula.backward_us, formula.download_us + scalars_us,
                                     formula.update_us, formula.upload_us});
    // A pipeline of four stages: the first bucket passes each, the slowest does all of them.
    const auto fuller = [](const Bucket& a, const Bucket& b) { return a.elems < b.elems; };
    const Bucket& fullest = *std::ranges::max_element(step.layout.buckets, fuller);
    const double layers = std::max(1.0, static_cast<double>(fullest.elems) /
                                            static_cast<double>(step.layout.segments[0].elems));
    const double most = formula.forward_us + slowest + layers * step.times.backward[0].us +
                        formula.largest_download_us * layers + formula.largest_update_us +
                        formula.largest_upload_us;
    EXPECT_LE(open.step_us, most * (1 + kRounding));
    EXPECT_LE(open.step_us, run(step, StepSchedule::serial).step_us * (1 + kRounding));
  }
}

/// Places drawn at random, streamed ones included.
void scatter(RandomStep& step, std::uint64_t seed) {
  Draw draw(seed);
  for (BucketPlace& place : step.places) place.home = static_cast<Home>(draw.below(kHomes));
}

TEST(Simulate, AccountsForAllTime) {
  for (const Shape shape : testing::kShapes) {
    for (std::uint64_t seed = 0; seed < 40; ++seed) {
      SCOPED_TRACE("shape " + std::to_string(static_cast<int>(shape)) + " seed " +
                   std::to_string(seed));
      RandomStep step = random_step(seed, shape);
      if (seed % 4 != 0) scatter(step, seed);
      for (const auto schedule : {StepSchedule::exact, StepSchedule::open, StepSchedule::blocking,
                                  StepSchedule::serial}) {
        const Prediction p = run(step, schedule);
        const double sum = p.forward_us + p.backward_us + p.exposed.total_us();
        EXPECT_NEAR(p.step_us, sum, p.step_us * kRounding);
        EXPECT_LE(p.compute_us, p.step_us * (1 + kRounding));
        EXPECT_GE(p.compute_us, (p.forward_us + p.backward_us) * (1 - kRounding));
      }
    }
  }
}

TEST(Simulate, LessWaitingIsNeverSlowerOnTheHost) {
  for (const Shape shape : testing::kShapes) {
    for (std::uint64_t seed = 0; seed < 40; ++seed) {
      const RandomStep step = random_step(seed, shape);
      const double exact = run(step, StepSchedule::exact).step_us;
      const double blocking = run(step, StepSchedule::blocking).step_us;
      const double serial = run(step, StepSchedule::serial).step_us;
      EXPECT_LE(exact, blocking * (1 + kRounding)) << "seed " << seed;
      EXPECT_LE(blocking, serial * (1 + kRounding)) << "seed " << seed;
    }
  }
}

TEST(Simulate, TimelineHoldsEveryOperationAndNoResourceDoesTwoThings) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RandomStep step = random_step(seed, Shape::uneven);
    scatter(step, seed);
    std::vector<TimelineEntry> timeline;
    const Prediction p = run(step, StepSchedule::exact, &timeline);
    std::vector<double> free_at(3 + step.rates.node_elems_per_s.size(), 0.0);
    std::size_t updates = 0;
    double compute = 0.0;
    for (const TimelineEntry& entry : timeline) {
      const std::size_t unit = static_cast<std::size_t>(entry.resource) + entry.node;
      EXPECT_GE(entry.start_us, free_at[unit] - p.step_us * kRounding);
      EXPECT_GE(entry.end_us, entry.start_us);
      free_at[unit] = entry.end_us;
      if (entry.kind == OpKind::update) ++updates;
      if (entry.resource == Resource::compute) compute += entry.end_us - entry.start_us;
    }
    EXPECT_EQ(updates, step.layout.buckets.size());
    EXPECT_NEAR(compute, p.compute_us, p.step_us * kRounding);
  }
}

/// Small enough to work out by hand: one bucket of each home.
TEST(Simulate, ByHand) {
  RandomStep step;
  step.layout = testing::layout_of({4096, 4096, 4096}, 4096, {1.0});
  step.times.forward = {{10, 0}, {10, 1}, {10, 2}};
  step.times.backward = {{20, 2}, {20, 1}, {20, 0}};
  step.rates.link_down_bytes_per_s = 8192e6 / 5.0;  // a gradient in 5 us
  step.rates.link_up_bytes_per_s = 8192e6 / 5.0;    // a weight in 5 us, a state in 30 us
  step.rates.node_elems_per_s = {4096e6 / 100.0};   // an update in 100 us
  step.rates.device_elems_per_s = 4096e6 / 2.0;     // an update in 2 us
  const double gate = 96.0 / 8192.0 * 5.0;
  step.places = {{Home::host, 0}, {Home::device_resident, 0}, {Home::device_streamed, 0}};
  const Prediction mixed = run(step, StepSchedule::exact);
  // Backward 60, the gate's scalars (behind the gradient that the end of backward sends, 5), the
  // update of bucket 0 100, its weight 5, forward 30. The device updates its two meanwhile.
  EXPECT_NEAR(mixed.step_us, 60 + 5 + gate + 100 + 5 + 30, 1e-6);
  EXPECT_NEAR(mixed.exposed.device_us, 4, 1e-6);
  EXPECT_EQ(mixed.bytes_down, 8192u + 96u + 4096u * 12);
  EXPECT_EQ(mixed.bytes_up, 8192u + 4096u * 12);
  step.places[0] = {Home::device_resident, 0};
  const Prediction device = run(step, StepSchedule::exact);
  // State of bucket 2 is sent ahead, during backward.
  EXPECT_NEAR(device.step_us, 60 + gate + 3 * 2 + 30, 1e-6);
  step.places.assign(3, {Home::host, 0});
  for (const StepSchedule schedule : {StepSchedule::exact, StepSchedule::open}) {
    EXPECT_EQ(run(step, schedule).bytes_down, 3 * 8192u + 72u) << "no counts of the device's";
  }
}

/// Buckets of two packed tensors take all buffers to unpack from; a large tensor of the next bucket
/// goes up meanwhile, what that one packs behind it.
TEST(Simulate, WhatIsNotPackedWaitsForNoBuffer) {
  constexpr double kKernelUs = 50.0;
  constexpr double kLargeUs = kKernelUs * (core::kUnpackBuffers + 4);
  constexpr double kPackedUs = 1.0;
  std::vector<ParameterShape> shapes;
  for (std::size_t b = 0; b <= core::kUnpackBuffers; ++b) {  // another dtype is another bucket
    shapes.resize(shapes.size() + 2, {1000, b % 2 == 0 ? DType::f16 : DType::bf16, false});
  }
  const auto large = static_cast<std::uint64_t>(2000 * kLargeUs / kPackedUs);
  shapes.push_back({large, shapes.back().dtype, false});
  const std::vector<double> weights = {1.0};
  RandomStep step;
  step.layout = make_layout(shapes, 4 * large, weights);
  ASSERT_EQ(step.layout.buckets.size(), core::kUnpackBuffers + 1);
  ASSERT_EQ(step.layout.buckets.back().packed_segments, 2U);
  const auto count = static_cast<std::uint32_t>(shapes.size());
  for (std::uint32_t p = 0; p < count; ++p) step.times.backward.push_back({1, p});
  step.times.forward = {{10, count - 1}};
  step.rates.node_elems_per_s = {0.0};
  step.rates.link_up_bytes_per_s = 4000e6 / kPackedUs;
  step.rates.kernel_us = kKernelUs;
  step.places.assign(step.layout.buckets.size(), {Home::host, 0});
  const Prediction p = run(step, StepSchedule::exact);
  EXPECT_NEAR(p.step_us,
              count * (1 + kKernelUs) + core::kUnpackBuffers * kPackedUs + kLargeUs + kPackedUs +
                  kKernelUs + 10,
              1e-6);
}

TEST(Simulate, RefusesPlacesThatDoNotFit) {
  RandomStep step = random_step(1, Shape::even);
  step.places.pop_back();
  EXPECT_THROW((void)run(step, StepSchedule::exact), Error);
  step.places.push_back({Home::host, 77});
  EXPECT_THROW((void)run(step, StepSchedule::exact), Error);
  step.times.backward.pop_back();
  EXPECT_THROW((void)make_step_model(step.layout, step.times), Error);
}

TEST(StepModel, RefusesTimesThatMakeNoSense) {
  const RandomStep step = random_step(1, Shape::even);
  for (const double bad :
       {-1.0, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    for (auto work : {&StepTimes::forward, &StepTimes::backward}) {
      StepTimes times = step.times;
      (times.*work)[0].us = bad;
      outboard::testing::expect_error(ErrorCode::invalid_argument, {"StepTimes::", " us;"},
                                      [&] { (void)make_step_model(step.layout, times); });
    }
  }
}

// --- sums of micro-batches
// ------------------------------------------------------------------------

/// Homes drawn for whole parameters.
RandomStep random_sums(std::uint64_t seed, Shape shape, std::uint32_t micro_batches) {
  Draw draw(seed * 31 + 7);
  const std::size_t count = testing::draw_count(draw, shape);
  RandomStep step = testing::with_sums(draw_step(seed, shape, count, 16384), micro_batches);
  for (std::size_t b = 0; b < step.places.size(); ++b) {
    const bool new_unit = b == 0 || step.layout.buckets[b].unit != step.layout.buckets[b - 1].unit;
    const Home home = draw.below(seed % 3 + 1) == 0 ? Home::host : Home::device_resident;
    step.places[b].home = new_unit ? home : step.places[b - 1].home;
  }
  return step;
}

TEST(SimulateSums, TwoMicroBatchesStandForAll) {
  double worst = 0.0;
  for (const Shape shape : testing::kShapes) {
    for (std::uint64_t seed = 0; seed < 60; ++seed) {
      const StepSchedule schedule = seed % 2 == 0 ? StepSchedule::exact : StepSchedule::open;
      const RandomStep step = random_sums(seed, shape, 3 + static_cast<std::uint32_t>(seed % 5));
      const StepModel model = make_step_model(step.layout, step.times);
      std::vector<TimelineEntry> timeline;
      const Prediction all = simulate(model, step.rates, step.places, schedule, &timeline);
      const Prediction two = simulate(model, step.rates, step.places, schedule);
      SCOPED_TRACE("shape " + std::to_string(static_cast<int>(shape)) + " seed " +
                   std::to_string(seed));
      EXPECT_NEAR(two.step_us, all.step_us, 0.01 * all.step_us);
      EXPECT_LT(two.events, all.events);
      EXPECT_EQ(two.bytes_down, all.bytes_down);
      EXPECT_NEAR(two.compute_us, all.compute_us, kRounding * all.compute_us);
      EXPECT_NEAR(two.link_down_us, all.link_down_us, kRounding * all.link_down_us + kRounding);
      for (std::size_t n = 0; n < all.node_us.size(); ++n) {
        EXPECT_NEAR(two.node_us[n], all.node_us[n], kRounding * all.node_us[n] + kRounding);
      }
      for (const Prediction* p : {&all, &two}) {
        EXPECT_NEAR(p->forward_us + p->backward_us + p->exposed.total_us(), p->step_us,
                    kRounding * p->step_us);
      }
      worst = std::max(worst, std::abs(two.step_us / all.step_us - 1.0));
    }
  }
  std::printf("300 steps of 3 to 7 micro-batches: two for all are at most %.3f %% off\n",
              100 * worst);
}

/// One layer on one node: nothing overlaps but the next micro-batch's work.
TEST(SimulateSums, OfOneLayerAreWorkedOutByHand) {
  const std::vector<double> weights = {1.0};
  const std::vector<ParameterShape> shapes = {{4096, DType::f16, true}};
  RandomStep step;
  step.layout = make_layout(shapes, 8192, weights);
  step.rates = {.link_down_bytes_per_s = 8192e6 / 50,  // 50 us
                .link_up_bytes_per_s = 8192e6 / 40,
                .node_elems_per_s = {4096e6 / 90}};  // and 30 for an addition
  step.times = {.forward = {{10, 0}}, .backward = {{20, 0}}, .micro_batches = 3};
  step.places = {{Home::host, 0}};
  const Prediction p = run(step, StepSchedule::exact);
  // Copies follow each other as soon as there is a gradient: 20 + 50, then the buffer is free and
  // 20 + 50 again, twice.
  EXPECT_NEAR(p.step_us, 3 * (20 + 50) + 30 + 90 + 40 + 10, 1e-9 * p.step_us);
  EXPECT_EQ(p.bytes_down, 3U * 8192U) << "no scalars: the sums are on the host";
  EXPECT_NEAR(p.node_us[0], 3 * 30 + 90, 1e-6);
  EXPECT_NEAR(p.exposed.gradients_us, p.step_us - 3 * 30 - 90 - 40, 1e-6);
}

}  // namespace
}  // namespace outboard::plan
