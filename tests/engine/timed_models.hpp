// SPDX-License-Identifier: Apache-2.0
/// One model, its rates and its times, for the engine on the virtual clock and for the planner's
/// simulator: how long each says that a step takes.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/drawn_options.hpp"
#include "engine/splits.hpp"
#include "engine/timed_steps.hpp"
#include "plan/placement.hpp"
#include "plan/simulate.hpp"

namespace outboard::testing {

/// How a model is run.
struct PlannedWay {
  std::uint64_t seed = 0;
  Placement placement = Placement::host;
  Schedule schedule = Schedule::exact;
  std::uint32_t micro_batches = 0;  ///< that the engine adds up; 0: the trainer does
};

struct TimedModel {
  std::vector<std::uint64_t> elems;
  plan::StepTimes times;
  plan::Rates rates;
  std::uint64_t bucket_elems = 4096;
};

/// Bytes that the device's update and norm kernels touch for one element.
inline constexpr double kUpdateBytes = 28.0;
inline constexpr double kNormBytes = 2.0;
inline constexpr double kSumBytes = 10.0;

inline TinyOptions engine_options(const TimedModel& model, const PlannedWay& c) {
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
  options.gradient = [](const GradientPoint&) { return 0.5F; };  // no time depends on it
  if (c.placement == Placement::fraction) {
    options.config.device_fraction = between(0.1, 0.9, c.seed, 11);
    round_fraction(options);
  }
  return options;
}

/// Steps that are run: those that are timed come after some to warm up.
struct StepCount {
  std::uint64_t warm = 2;
  std::uint64_t timed = 8;
};

/// From one end of forward to another.
struct MeasuredSteps {
  double mean_us = 0.0;
  double longest_us = 0.0;
  double gate_bytes = 0.0;  ///< the scalars' copies of one step
};

inline MeasuredSteps measure_steps(const TimedModel& model, const PlannedWay& c,
                                   const StepCount& steps = {}) {
  TinyTrainer trainer(engine_options(model, c));
  trainer.start();
  const std::vector<sim::Duration> ends = forward_ends(trainer, steps.warm + steps.timed);
  MeasuredSteps out{.mean_us = mean_step_us(ends, steps.warm)};
  for (std::size_t s = steps.warm; s < ends.size(); ++s) {
    const auto took = static_cast<double>((ends[s] - ends[s - 1]).count()) * 1e-3;
    out.longest_us = std::max(out.longest_us, took);
  }
  out.gate_bytes = static_cast<double>(trainer.engine().stats().gate_bytes_down) /
                   static_cast<double>(ends.size());
  return out;
}

inline double predicted_us(const TimedModel& model, const PlannedWay& c) {
  // The engine's own layout: shares go by the nodes' rates.
  const std::vector<double>& weights = model.rates.node_elems_per_s;
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

}  // namespace outboard::testing
