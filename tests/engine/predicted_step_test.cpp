// SPDX-License-Identifier: Apache-2.0
// The planner's simulator against the engine itself, on the virtual clock of the software GPU: the
// same model, rates and times give the same step.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "engine/drawn_options.hpp"
#include "engine/splits.hpp"
#include "engine/timed_steps.hpp"
#include "engine/trajectory.hpp"
#include "plan/placement.hpp"
#include "plan/simulate.hpp"

namespace outboard::testing {
namespace {

constexpr std::uint64_t kWarmSteps = 2;
constexpr std::uint64_t kMeasuredSteps = 8;
constexpr std::uint64_t kMeasuredMicroBatches = 12;

struct Case {
  std::uint64_t seed = 0;
  Placement placement = Placement::host;
  Schedule schedule = Schedule::exact;
  std::uint32_t micro_batches = 0;  ///< that the engine adds up; 0: the trainer does
};

struct Model {
  std::vector<std::uint64_t> elems;
  plan::StepTimes times;
  plan::Rates rates;
  std::uint64_t bucket_elems = 4096;
};

/// Compute, updates and link are each the slowest for some seeds. So many layers that one bucket
/// more or less in a race of two that end at the same time is less than 1 %.
Model make_model(const Case& c) {
  const std::uint64_t seed = c.seed;
  Model model;
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

/// Bytes that the device's update and norm kernels touch for one element.
constexpr double kUpdateBytes = 28.0;
constexpr double kNormBytes = 2.0;
constexpr double kSumBytes = 10.0;

TinyOptions engine_options(const Model& model, const Case& c) {
  TinyOptions options;
  options.device = virtual_device(c.seed);
  sim::Rates& rates = options.device.rates;
  rates.link_down_bytes_per_s = model.rates.link_down_bytes_per_s;
  rates.link_up_bytes_per_s = model.rates.link_up_bytes_per_s;
  rates.copy_latency = sim::Duration(std::llround(model.rates.copy_us * 1e3));
  rates.device_bytes_per_s = model.rates.device_elems_per_s * kUpdateBytes;
  rates.host_elems_per_s = model.rates.node_elems_per_s;
  options.config.schedule = c.schedule;
  options.config.placement = c.placement;
  if (c.micro_batches > 0) {
    options.config.accumulate = Accumulate::host;
    options.config.accumulation = options.passes = c.micro_batches;
  }
  options.config.max_grad_norm = c.schedule == Schedule::open ? 0.0 : 1.0;
  options.config.loss_scaling = {.dynamic = false, .initial_scale = 1.0};
  options.config.bucket_bytes = static_cast<std::size_t>(model.bucket_elems) * 2;
  options.config.host.threads_per_node = 1;
  options.config.host.synthetic_topology =
      "numa:" + std::to_string(model.rates.node_elems_per_s.size()) + " core:1 pu:1";
  add_parameters(options, model.elems);
  for (std::size_t i = 0; i < model.elems.size(); ++i) {
    const double backward_us = model.times.backward[model.elems.size() - 1 - i].us;
    options.forward_each.emplace_back(std::llround(model.times.forward[i].us * 1e3));
    options.backward_each.emplace_back(std::llround(backward_us * 1e3));
  }
  options.digest = false;
  if (c.placement == Placement::fraction) {
    options.config.device_fraction = between(0.1, 0.9, c.seed, 11);
    round_fraction(options);
  }
  return options;
}

/// Mean step, from one end of forward to another.
double measured_us(const Model& model, const Case& c) {
  TinyTrainer trainer(engine_options(model, c));
  trainer.start();
  const std::uint64_t steps =
      c.micro_batches > 1 ? 1 + kMeasuredMicroBatches / c.micro_batches : kMeasuredSteps;
  return mean_step_us(forward_ends(trainer, kWarmSteps + steps), kWarmSteps);
}

double predicted_us(const Model& model, const Case& c) {
  // The engine's own layout: nodes with one thread each weigh the same.
  const std::vector<double> weights(model.rates.node_elems_per_s.size(), 1.0);
  std::vector<plan::ParameterShape> shapes;
  for (const std::uint64_t elems : model.elems) {
    shapes.push_back({elems, DType::f16, c.micro_batches > 0});
  }
  const Config config = engine_options(model, c).config;
  const plan::PlacedModel placed =
      plan::place_model(shapes, config.bucket_bytes, weights, plan::wish_of(config));
  std::vector<plan::BucketPlace> places;
  for (std::size_t b = 0; b < placed.homes.size(); ++b) {
    places.push_back({placed.homes[b], placed.layout.buckets[b].node});
  }
  plan::StepTimes times = model.times;
  times.micro_batches = c.micro_batches;
  plan::StepModel step = plan::make_step_model(placed.layout, times);
  step.state_bytes_per_elem = plan::wish_of(config).memory.state_bytes_per_elem;
  return plan::simulate(step, model.rates, places, plan::step_schedule(c.schedule)).step_us;
}

std::vector<Case> cases_of_trainer() {
  std::vector<Case> cases;
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

std::vector<Case> cases_of_sums() {
  std::vector<Case> cases;
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

/// A streamed bucket takes six times as long on the link as its gradients. With an open gate its
/// update, of several kernels, runs amid the trainer's backward: whoever loses a draw there delays
/// the whole ring.
double tolerance(const Case& c) {
  const bool amid = c.placement == Placement::device_streamed && c.schedule == Schedule::open;
  return amid ? 0.02 : 0.01;
}

// The mean: the software GPU draws lots which of two waiting copies goes first.
void expect_close(const std::vector<Case>& cases) {
  double worst = 0.0;
  for (const Case& c : cases) {
    Model model = make_model(c);
    if (c.placement != Placement::host) {
      model.rates.device_elems_per_s = 1e9 / between(1, 10, c.seed, 8);
      model.rates.norm_elems_per_s = model.rates.device_elems_per_s * kUpdateBytes / kNormBytes;
      model.rates.device_sums_per_s = model.rates.device_elems_per_s * kUpdateBytes / kSumBytes;
    }
    SCOPED_TRACE("seed " + std::to_string(c.seed) + ", placement " +
                 std::to_string(static_cast<int>(c.placement)) + ", " + name_of(c.schedule) + ", " +
                 std::to_string(c.micro_batches) + " micro-batches");
    const double measured = measured_us(model, c);
    const double predicted = predicted_us(model, c);
    EXPECT_NEAR(predicted, measured, tolerance(c) * measured);
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
