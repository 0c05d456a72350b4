// SPDX-License-Identifier: Apache-2.0
/// A model of a few thousand elements and ways to run it, drawn from a seed: for many short runs
/// that end in the middle.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "engine/drawn_options.hpp"
#include "engine/trajectory.hpp"

namespace outboard::testing {

/// What decides the bits of a run.
struct WayModel {
  bool gated = true;         ///< clips and scales dynamically
  bool open = false;         ///< Schedule::open, and so not gated
  std::uint32_t passes = 0;  ///< that the engine adds up
  auto operator<=>(const WayModel&) const = default;
};

/// The first step that overflows: skipped, or with an open gate partial.
inline constexpr std::uint64_t kWayOverflow = 3;
/// In which Placement::automatic moves.
inline constexpr std::uint64_t kWayMove = 2;

inline TinyOptions way_options(const WayModel& model) {
  TinyOptions options;
  options.device = virtual_device(0);
  options.device.memory_bytes = std::size_t{1} << 20;
  options.config.bucket_bytes = 8192;
  options.config.host.threads_per_node = 1;
  options.config.host.synthetic_topology = "numa:1 core:1 pu:1";
  options.config.loss_scaling = {.dynamic = model.gated, .initial_scale = 64.0};
  if (model.gated) options.config.max_grad_norm = 1.0;
  if (model.open) options.config.schedule = Schedule::open;
  options.groups = {AdamW{.lr = 1e-2, .weight_decay = 0.1}, AdamW{.lr = 3e-3, .beta2 = 0.95}};
  const std::array<std::uint64_t, 6> sizes = {4200, 10, 0, 20, 5000, 3000};
  add_parameters(options, sizes);
  options.has_gradient = [](std::uint64_t step, std::uint32_t i) { return i != 5 || step != 1; };
  options.injected = {{.step = kWayOverflow, .parameter = 0, .element = 4199}};
  options.digest = false;
  options.max_steps = 8;
  if (model.passes == 0) return options;
  options.config.accumulate = Accumulate::host;
  options.config.accumulation = options.passes = model.passes;
  return options;
}

struct DrawnWay {
  WayModel model;
  TinyOptions options;
  bool moves = false;       ///< set_placement() between steps
  std::uint64_t turns = 0;  ///< bits: what happens in which step
};

inline void draw_way_speeds(Draw& draw, sim::Options& device) {
  device.rates.link_down_bytes_per_s = draw.rate(7, 3);
  device.rates.link_up_bytes_per_s = draw.rate(7, 3);
  device.rates.copy_latency = sim::Duration(draw.below(20'000));
  device.rates.host_elems_per_s = {draw.rate(6, 3)};
  device.max_random_delay = sim::Duration(draw.coin() ? 1'000'000 : 10'000);
  device.stream_memory_ops = draw.below(4) != 0;
  if (draw.below(6) == 0) device.pinned_limit_bytes = draw.below(60'000);
}

/// Slow enough beside the device that state moves there once two steps have been seen.
inline void make_automatic(TinyOptions& options) {
  options.config.placement = Placement::automatic;
  sim::Rates& rates = options.device.rates;
  rates.host_elems_per_s = {1e6};
  rates.link_down_bytes_per_s = rates.link_up_bytes_per_s = 1e9;
  rates.device_bytes_per_s = 1e10;
  options.device.max_random_delay = sim::Duration(10'000);
  options.forward = options.backward = std::chrono::microseconds(100);
}

inline void draw_way_placement(Draw& draw, DrawnWay& way) {
  TinyOptions& options = way.options;
  Config& config = options.config;
  if (config.schedule != Schedule::open && draw.below(4) == 0) return make_automatic(options);
  const std::array<Placement, 5> placements = {Placement::host, Placement::host,
                                               Placement::device_resident, Placement::fraction,
                                               Placement::device_streamed};
  config.placement = placements.at(draw.below(placements.size()));
  if (config.placement == Placement::fraction) config.device_fraction = 0.5;
  round_fraction(options);
  way.moves = draw.coin();
  config.keep_host_room = way.moves && config.placement != Placement::host;
}

inline DrawnWay draw_way(std::uint64_t seed) {
  Draw draw(seed);
  DrawnWay way;
  const std::array<Schedule, 5> schedules = {Schedule::exact, Schedule::exact, Schedule::open,
                                             Schedule::blocking, Schedule::serial};
  const Schedule schedule = schedules.at(draw.below(schedules.size()));
  const bool open = schedule == Schedule::open;
  way.model = {
      .gated = !open && draw.below(4) != 0, .open = open, .passes = draw.below(3) == 0 ? 2U : 0U};
  way.options = way_options(way.model);
  way.options.device.seed = seed;
  Config& config = way.options.config;
  config.schedule = schedule;
  draw_way_speeds(draw, way.options.device);
  draw_way_placement(draw, way);
  if (draw.below(3) == 0) config.pinned_slots = static_cast<std::uint32_t>(1 + draw.below(3));
  config.check_waits = draw.below(3) == 0;
  if (draw.below(3) == 0) config.host.synthetic_topology = "numa:2 core:1 pu:1";
  way.options.second_stream = draw.coin();
  way.turns = draw.below(1U << 20);
  return way;
}

/// The `which`-th of some placements to move to.
inline PlacementChange way_move(const TinyOptions& options, std::uint64_t which) {
  const std::array<double, 4> shares = {1.0, 0.0, 0.5, 0.7};
  if (which % 5 == 4) return {.placement = Placement::device_streamed};
  return {.placement = Placement::fraction,
          .device_fraction = nearest_split(options, shares.at(which % 5)).fraction};
}

}  // namespace outboard::testing
