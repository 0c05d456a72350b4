// SPDX-License-Identifier: Apache-2.0
// The time of a step with an open gate, in virtual time, on a thousand drawn layouts: what the
// planner's simulator says, and where buckets are even within the closed bound.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "engine/regimes.hpp"
#include "engine/timed_models.hpp"
#include "step_bench/step_bound.hpp"

namespace outboard::testing {
namespace {

/// A forward ends when all is refreshed, so from the first end on a step is like any other.
constexpr StepCount kSteps = {.warm = 1, .timed = 2};
/// What the planner may be off: nanoseconds are rounded, once for each operation.
constexpr double kOff = 1e-4;

enum class Shape { even, uneven, one_huge, tied_first, huge_last, tiny_first, tiny_last, tiny };
constexpr std::array kShapes = {Shape::even,       Shape::uneven,    Shape::one_huge,
                                Shape::tied_first, Shape::huge_last, Shape::tiny_first,
                                Shape::tiny_last,  Shape::tiny};

const char* to_string(Shape shape) {
  switch (shape) {
    case Shape::even:
      return "even";
    case Shape::uneven:
      return "uneven";
    case Shape::one_huge:
      return "one huge";
    case Shape::tied_first:
      return "tied first";
    case Shape::huge_last:
      return "huge last";
    case Shape::tiny_first:
      return "tiny first";
    case Shape::tiny_last:
      return "tiny last";
    case Shape::tiny:
      return "tiny";
  }
  return "?";
}

struct Layout {
  Shape shape = Shape::even;
  const Regime* regime = nullptr;
  std::uint32_t nodes = 1;
  std::uint64_t seed = 0;
};

std::uint64_t layers_of(const Layout& layout) {
  const std::uint64_t random = mix_bits(layout.seed, 1, 1);
  return layout.shape == Shape::tiny ? 500 + random % 1000 : 30 + random % 21;
}

std::uint64_t layer_elems(const Layout& layout, std::uint64_t layer, std::uint64_t layers) {
  const std::uint64_t random = mix_bits(layout.seed, layer, 77);
  const bool first_half = layer < layers / 2;
  switch (layout.shape) {
    case Shape::even:
      return 8192;
    case Shape::uneven:
      return 1 + random % 24000;
    case Shape::one_huge:
      return layer == layout.seed % layers ? 131072 : 500 + random % 6000;
    case Shape::tied_first:  // needed first, and its gradient arrives last
      return layer == 0 ? 60000 + random % 120000 : 1000 + random % 8000;
    case Shape::huge_last:
      return layer + 1 == layers ? 60000 + random % 120000 : 1000 + random % 8000;
    case Shape::tiny_first:
      return first_half ? 1 + random % 600 : 12000 + random % 8000;
    case Shape::tiny_last:
      return first_half ? 12000 + random % 8000 : 1 + random % 600;
    case Shape::tiny:
      return 1 + random % 300;
  }
  return 1;
}

TimedModel make_model(const Layout& layout) {
  const Regime& regime = *layout.regime;
  TimedModel model;
  model.bucket_elems = std::uint64_t{4096} << (layout.seed % 3);
  const std::uint64_t layers = layers_of(layout);
  for (std::uint32_t i = 0; i < layers; ++i) {
    model.elems.push_back(layer_elems(layout, i, layers));
    const auto n = static_cast<double>(model.elems.back());
    // 0.5 to 1.5 times the regime's rate, or exactly it.
    const auto factor = [&](std::uint64_t salt) {
      return layout.shape == Shape::even ? 1.0 : between(0.5, 1.5, layout.seed, salt + i);
    };
    model.times.forward.push_back({std::round(n * regime.forward * factor(10'000)) * 1e-3, i});
    model.times.backward.push_back({std::round(n * regime.backward * factor(20'000)) * 1e-3, i});
  }
  std::ranges::reverse(model.times.backward);
  model.rates.link_down_bytes_per_s = 2e9 / regime.down;
  model.rates.link_up_bytes_per_s = 2e9 / regime.up;
  for (std::uint32_t n = 0; n < layout.nodes; ++n) {
    model.rates.node_elems_per_s.push_back(1e9 / update_ns(regime, layout.nodes, n, layout.seed));
  }
  if (layout.seed % 3 == 0) return model;  // kernels and copies take nothing but what bytes do
  model.rates.copy_us = 2.0;
  model.rates.device_elems_per_s = 1e9 / between(1, 10, layout.seed, 8);
  model.rates.norm_elems_per_s = model.rates.device_elems_per_s * kUpdateBytes / kNormBytes;
  return model;
}

std::vector<Layout> all_layouts() {
  std::vector<Layout> out;
  for_each_layout(
      kShapes, [](Shape shape) { return shape == Shape::tiny ? 3U : 19U; },
      [&](Shape shape, const Regime& regime, std::uint32_t nodes, std::uint64_t seed) {
        out.push_back({shape, &regime, nodes, seed});
      });
  return out;
}

/// Where all buckets are alike. Beside what the bound speaks of, the engine's kernels take the
/// device's time (small tensors are read and written when packed, and once more when spread),
/// copies begin late and scalars use the link.
double bound_us(const TimedModel& model, const Layout& layout, double gate_bytes) {
  step_bench::StepCost cost;
  cost.bucket_elems = model.bucket_elems;
  for (std::size_t i = 0; i < model.elems.size(); ++i) {
    cost.layers.push_back({model.elems[i], model.times.forward[i].us * 1e3,
                           model.times.backward[model.elems.size() - 1 - i].us * 1e3});
  }
  for (const double per_s : model.rates.node_elems_per_s) {
    cost.update_ns_per_elem.push_back(1e9 / per_s);
  }
  cost.down_ns_per_elem = layout.regime->down;
  cost.up_ns_per_elem = layout.regime->up;
  double elems = 0.0;
  for (const std::uint64_t more : model.elems) elems += static_cast<double>(more);
  const double kernels_us = plan::duration_us(4 * elems, model.rates.norm_elems_per_s);
  const auto copies = static_cast<double>(3 * step_bench::layout_of(cost).buckets.size());
  return step_bench::bound_of(cost).open_ns() * 1e-3 + kernels_us + copies * model.rates.copy_us +
         gate_bytes * layout.regime->down * 0.5e-3 + copies * 1e-3;  // rounded to ns
}

TEST(OpenLayouts, TakeWhatThePlannerSaysAndEvenOnesNoMoreThanTheBound) {
  std::vector<double> errors;
  double worst_of_bound = 0.0;
  for (const Layout& layout : all_layouts()) {
    SCOPED_TRACE(std::string(to_string(layout.shape)) + ", " + layout.regime->name + ", " +
                 std::to_string(layout.nodes) + " nodes, seed " + std::to_string(layout.seed));
    const TimedModel model = make_model(layout);
    const PlannedWay way{.seed = layout.seed, .schedule = Schedule::open};
    const MeasuredSteps measured = measure_steps(model, way, kSteps);
    const double predicted = predicted_us(model, way);
    EXPECT_NEAR(predicted, measured.mean_us, kOff * measured.mean_us);
    errors.push_back(std::abs(predicted / measured.mean_us - 1.0));
    if (layout.shape != Shape::even) continue;
    const double bound = bound_us(model, layout, measured.gate_bytes);
    EXPECT_LE(measured.longest_us, bound);
    worst_of_bound = std::max(worst_of_bound, measured.longest_us / bound);
  }
  std::ranges::sort(errors);
  ASSERT_GE(errors.size(), 1000U);
  std::printf("%zu layouts, step as planned but for: median %.4f %%, p99 %.4f %%, worst %.4f %%\n",
              errors.size(), 100 * errors[errors.size() / 2],
              100 * errors[errors.size() * 99 / 100], 100 * errors.back());
  std::printf("even ones: longest step over the bound at most %.4f\n", worst_of_bound);
}

}  // namespace
}  // namespace outboard::testing
