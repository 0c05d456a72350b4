// SPDX-License-Identifier: Apache-2.0
// The time of a step, in virtual time: the exact schedule stays within its bound for even and
// uneven models, bound by updates, by the link or by compute; the serial one is the plain sum.

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "engine/regimes.hpp"
#include "engine/timed_steps.hpp"
#include "engine/trajectory.hpp"
#include "step_bench/step_bound.hpp"

namespace outboard::testing {
namespace {

using step_bench::bound_of;
using step_bench::LayerCost;
using step_bench::StepBound;
using step_bench::StepCost;

constexpr double kTolerance = 1.01;
constexpr std::uint64_t kWarmSteps = 2;
constexpr std::uint64_t kMeasuredSteps = 3;

enum class Shape { even, uneven, one_huge, tied, tiny_first, tiny_last, growing };
constexpr std::array kShapes = {Shape::even,       Shape::uneven,    Shape::one_huge, Shape::tied,
                                Shape::tiny_first, Shape::tiny_last, Shape::growing};

const char* to_string(Shape shape) {
  switch (shape) {
    case Shape::even:
      return "even";
    case Shape::uneven:
      return "uneven";
    case Shape::one_huge:
      return "one huge";
    case Shape::tied:
      return "tied";
    case Shape::tiny_first:
      return "tiny first";
    case Shape::tiny_last:
      return "tiny last";
    case Shape::growing:
      return "growing";
  }
  return "?";
}

std::uint64_t layer_elems(Shape shape, std::uint64_t layer, std::uint64_t layers,
                          std::uint64_t seed) {
  const std::uint64_t random = mix_bits(seed, layer, 77);
  const bool first_half = layer < layers / 2;
  switch (shape) {
    case Shape::even:
      return 8192;
    case Shape::uneven:
      return 1 + random % 24000;
    case Shape::one_huge:
      return layer == seed % layers ? 65536 : 500 + random % 3000;
    case Shape::tied:  // a tied embedding is needed first, and its gradient arrives last
      return layer == 0 ? 20000 + random % 40000 : 1000 + random % 8000;
    case Shape::tiny_first:
      return first_half ? 1 + random % 600 : 12000 + random % 8000;
    case Shape::tiny_last:
      return first_half ? 12000 + random % 8000 : 1 + random % 600;
    case Shape::growing:
      return 256 + layer * layer * 150 + random % 200;
  }
  return 1;
}

StepCost make_cost(Shape shape, const Regime& regime, std::uint32_t nodes, std::uint64_t seed) {
  StepCost cost;
  const std::uint64_t layers = 6 + mix_bits(seed, 1, 1) % 7;
  for (std::uint64_t i = 0; i < layers; ++i) {
    LayerCost layer;
    layer.elems = layer_elems(shape, i, layers, seed);
    const auto elems = static_cast<double>(layer.elems);
    // 0.5 to 1.5 times the regime's rate, or exactly it.
    const auto factor = [&](std::uint64_t salt) {
      if (shape == Shape::even) return 1.0;
      return 0.5 + static_cast<double>(mix_bits(seed, i, salt) % 1000) / 1000.0;
    };
    layer.forward_ns = std::round(elems * regime.forward * factor(2));
    layer.backward_ns = std::round(elems * regime.backward * factor(3));
    cost.layers.push_back(layer);
  }
  cost.bucket_elems = std::uint64_t{4096} << (seed % 3);
  for (std::uint32_t n = 0; n < nodes; ++n) {
    cost.update_ns_per_elem.push_back(update_ns(regime, nodes, n, seed));
  }
  cost.down_ns_per_elem = regime.down;
  cost.up_ns_per_elem = regime.up;
  return cost;
}

TinyOptions options_for(const StepCost& cost, Schedule schedule, std::uint64_t seed) {
  TinyOptions options;
  options.device = virtual_device(seed);
  sim::Rates& rates = options.device.rates;
  rates.link_down_bytes_per_s = 2e9 / cost.down_ns_per_elem;
  rates.link_up_bytes_per_s = 2e9 / cost.up_ns_per_elem;
  for (const double ns : cost.update_ns_per_elem) rates.host_elems_per_s.push_back(1e9 / ns);
  options.config.schedule = schedule;
  options.config.max_grad_norm = 1.0;
  options.config.loss_scaling = {.dynamic = false, .initial_scale = 1.0};
  options.config.bucket_bytes = static_cast<std::size_t>(cost.bucket_elems) * 2;
  options.config.host.threads_per_node = 1;
  options.config.host.synthetic_topology =
      "numa:" + std::to_string(cost.update_ns_per_elem.size()) + " core:1 pu:1";
  std::vector<std::uint64_t> sizes;
  for (const LayerCost& layer : cost.layers) {
    sizes.push_back(layer.elems);
    options.forward_each.emplace_back(static_cast<std::int64_t>(layer.forward_ns));
    options.backward_each.emplace_back(static_cast<std::int64_t>(layer.backward_ns));
  }
  add_parameters(options, sizes);
  options.digest = false;
  return options;
}

/// The longest and shortest step after warming up, from one end of forward to the next.
struct Period {
  double longest_ns = 0.0;
  double shortest_ns = 1e30;
  double gate_bytes = 0.0;  ///< the gate's scalars, in one step
};

Period measure(const StepCost& cost, Schedule schedule, std::uint64_t seed) {
  TinyTrainer trainer(options_for(cost, schedule, seed));
  trainer.start();
  const std::vector<sim::Duration> ends = forward_ends(trainer, kWarmSteps + kMeasuredSteps);
  Period period;
  for (std::size_t s = kWarmSteps; s < ends.size(); ++s) {
    const auto took = static_cast<double>((ends[s] - ends[s - 1]).count());
    period.longest_ns = std::max(period.longest_ns, took);
    period.shortest_ns = std::min(period.shortest_ns, took);
  }
  const auto steps = static_cast<double>(kWarmSteps + kMeasuredSteps);
  period.gate_bytes = static_cast<double>(trainer.engine().stats().gate_bytes_down) / steps;
  return period;
}

struct Case {
  Shape shape;
  const Regime* regime;
  std::uint32_t nodes;
  std::uint64_t seed;
};

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for_each_layout(
      kShapes, [](Shape shape) { return shape == Shape::even ? 12U : 20U; },
      [&](Shape shape, const Regime& regime, std::uint32_t nodes, std::uint64_t seed) {
        cases.push_back({shape, &regime, nodes, seed});
      });
  return cases;
}

TEST(Schedule, ExactStaysWithinItsBoundAndSerialIsTheSum) {
  std::printf("%-11s %-9s %5s %4s %7s | %10s %10s %6s | %10s %10s %8s\n", "layout", "regime",
              "nodes", "seed", "buckets", "bound us", "exact us", "ratio", "sum us", "serial us",
              "speed-up");
  double worst = 0.0;
  double worst_speed_up = 1e30;
  double best_speed_up = 0.0;
  for (const Case& c : all_cases()) {
    const StepCost cost = make_cost(c.shape, *c.regime, c.nodes, c.seed);
    const StepBound bound = bound_of(cost);
    const Period exact = measure(cost, Schedule::exact, c.seed);
    const Period serial = measure(cost, Schedule::serial, c.seed);
    const double ratio = exact.longest_ns / bound.exact_ns();
    const double speed_up = serial.longest_ns / exact.longest_ns;
    std::printf("%-11s %-9s %5u %4u %7zu | %10.1f %10.1f %6.4f | %10.1f %10.1f %8.3f\n",
                to_string(c.shape), c.regime->name, c.nodes, static_cast<unsigned>(c.seed),
                bound.buckets, bound.exact_ns() / 1e3, exact.longest_ns / 1e3, ratio,
                bound.serial_ns() / 1e3, serial.longest_ns / 1e3, speed_up);
    EXPECT_LE(ratio, kTolerance);
    EXPECT_GE(exact.shortest_ns, bound.forward_ns + bound.backward_ns) << "work was not charged";
    // The gate's scalars share the link; every operation rounds to a nanosecond.
    const double gate_ns = exact.gate_bytes * cost.down_ns_per_elem / 2;
    const auto rounding = static_cast<double>(4 * (bound.buckets + cost.layers.size()));
    EXPECT_LE(serial.longest_ns, bound.serial_ns() + gate_ns + rounding);
    EXPECT_GE(serial.shortest_ns, bound.serial_ns() - rounding);
    worst = std::max(worst, ratio);
    worst_speed_up = std::min(worst_speed_up, speed_up);
    best_speed_up = std::max(best_speed_up, speed_up);
  }
  std::printf(
      "%zu layouts: worst exact/bound %.4f; exact is %.3f to %.3f times as fast as serial\n",
      all_cases().size(), worst, worst_speed_up, best_speed_up);
  EXPECT_GE(worst_speed_up, 1.0);
}

/// Guards the bound itself on a model small enough to work out by hand.
TEST(Schedule, BoundByHand) {
  StepCost cost;
  cost.layers = {{4096, 10, 20}, {8192, 30, 40}};  // buckets: layer 0; layer 1 in two pieces
  cost.update_ns_per_elem = {1.0 / 4096};
  cost.down_ns_per_elem = 100.0 / 4096;
  cost.up_ns_per_elem = 5.0 / 4096;
  const StepBound bound = bound_of(cost);
  ASSERT_EQ(bound.buckets, 3u);
  // Gradients at 40 and 60; copies 40..240 and 240..340.
  EXPECT_DOUBLE_EQ(bound.gate_ns, 340);
  EXPECT_TRUE(bound.copies_outstanding);
  // Updates end at 1, 2, 3; uploads at 6, 11, 16; forwards 6..16 and 16..46.
  EXPECT_DOUBLE_EQ(bound.refresh_forward_ns, 46);
  EXPECT_DOUBLE_EQ(bound.exact_ns(), 340 + 46 + 1);
  EXPECT_DOUBLE_EQ(bound.serial_ns(), 40 + 340 + 3 + 15);
}

}  // namespace
}  // namespace outboard::testing
