// SPDX-License-Identifier: Apache-2.0
/// Masters that outgrow their weights' type: each one counted once for each refresh, wherever it is
/// updated and whatever opens the gate, and named once.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "engine/drawn_options.hpp"
#include "engine/flavours.hpp"
#include "support/log_lines.hpp"
#include "support/seeds.hpp"

namespace outboard::testing {
namespace {

constexpr std::uint64_t kLargeSteps = 3;

std::vector<Flavour> ways() {
  std::vector<Flavour> out = all_flavours();
  for (const Flavour& flavour : open_flavours()) out.push_back(flavour);
  for (const Schedule schedule : {Schedule::exact, Schedule::open}) {
    out.push_back({.name = std::string("virtual_fraction_") + name_of(schedule),
                   .placement = Placement::fraction,
                   .device_fraction = 0.5,
                   .schedule = schedule});
  }
  return out;
}

/// The gradients of the second parameter are 0, so that it stays as it is; a step of the others is
/// larger than any half.
TinyOptions growing_model(const Flavour& flavour) {
  TinyOptions options;
  options.device = flavour.device();
  Config config;
  config.loss_scaling = {.dynamic = false, .initial_scale = 1.0};
  options.config = flavour.apply(config);
  options.groups = {AdamW{.lr = 7e4}};
  const std::vector<std::uint64_t> sizes = {40, 30, 9000, 50, 3000};
  add_parameters(options, sizes);
  options.gradient = [](const GradientPoint& at) { return at.parameter == 1 ? 0.0F : 1.0F; };
  // Afterwards only what has not grown is refreshed.
  options.has_gradient = [](std::uint64_t step, std::uint32_t i) {
    return step < kLargeSteps || i == 1;
  };
  options.digest = false;
  round_fraction(options);
  return options;
}

constexpr std::uint64_t kGrowing = 40 + 9000 + 50 + 3000;

void expect_counted(TinyOptions options, bool drain) {
  LogLines log;
  options.config.log = log.sink();
  TinyTrainer trainer(options);
  trainer.start();
  for (std::uint64_t s = 0; s < kLargeSteps; ++s) {
    trainer.step();
    if (drain) trainer.gpu().synchronize();
  }
  // What a step counts on the device is known in the next, or the one after it.
  for (int s = 0; s < 3; ++s) {
    trainer.engine().synchronize();
    trainer.gpu().synchronize();
    trainer.step();
  }
  EXPECT_EQ(trainer.engine().stats().weight_overflows, kLargeSteps * kGrowing);
  for (const char* name : {"'w0'", "'w2'", "'w3'", "'w4'"}) {
    EXPECT_EQ(log.warnings({name, "became Inf", "f16", "learning rate"}), 1U) << name;
  }
  EXPECT_EQ(log.warnings({"'w1'"}), 0U) << log.all();
}

class WeightOverflows : public ::testing::TestWithParam<Flavour> {};
INSTANTIATE_TEST_SUITE_P(Ways, WeightOverflows, ::testing::ValuesIn(ways()),
                         [](const auto& test) { return flavour_name(test.param); });

TEST_P(WeightOverflows, AreCountedInEveryRefresh) {
  for (const bool drain : {true, false}) expect_counted(growing_model(GetParam()), drain);
}

TEST(WeightOverflow, CountsBearDelaysAndOrders) {
  const std::vector<Flavour> all = ways();
  for_each_seed(300, [&](std::uint64_t seed) {
    Draw draw(seed);
    const Flavour& flavour = all.at(draw.below(all.size()));
    if (flavour.mode == sim::Mode::threads) return;
    TinyOptions options = growing_model(flavour);
    options.device.seed = seed;
    draw_device(draw, options.device);
    options.second_stream = draw.coin();
    SCOPED_TRACE(flavour.name + ": " + describe(options));
    expect_counted(options, false);
  });
}

}  // namespace
}  // namespace outboard::testing
