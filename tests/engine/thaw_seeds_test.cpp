// SPDX-License-Identifier: Apache-2.0
// Runs in virtual time in which parameters come one commit() after the other, at steps drawn from a
// seed, as are options, rules, dtypes, speeds and event orders. Each must have the bits of the
// plainest run that has all of them from the start.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>

#include "engine/drawn_options.hpp"
#include "engine/every_rule.hpp"
#include "engine/late_parameters.hpp"
#include "engine/splits.hpp"
#include "support/seeds.hpp"

namespace outboard::testing {
namespace {

constexpr std::uint64_t kSeeds = 400;
constexpr std::uint64_t kSteps = 7;

/// Rules and dtypes of a seed; how it is run is not in here.
TinyOptions draw_model(std::uint64_t seed) {
  Draw draw(mix_bits(seed, 1, 1));
  TinyOptions options = small_model();
  const auto rules = every_rule();
  options.groups.clear();
  for (int i = 0; i < 4; ++i) {
    options.rules.push_back(rules[draw.below(rules.size())].group);
    if (draw.below(3) == 0) options.rules.back().options = random_with_average();
  }
  for (TinyParameter& parameter : options.parameters) {
    parameter.group = static_cast<std::uint32_t>(draw.below(options.rules.size()));
    const std::uint64_t dtype = draw.below(6);
    if (dtype < 2) parameter.dtype = dtype == 0 ? DType::bf16 : DType::f32;
    if (draw.below(6) == 0) parameter.elems = 0;
  }
  options.injected.clear();
  if (options.parameters[3].elems > 0) {
    options.injected = {{.step = 2, .parameter = 3, .element = 12288, .bits = 0x7F800000}};
    if (options.parameters[3].dtype == DType::bf16) options.injected[0].bits = 0x7F80;
    if (options.parameters[3].dtype == DType::f16) options.injected[0].bits = 0x7C00;
  }
  return options;
}

Growths draw_growths(std::uint64_t seed) {
  Draw draw(mix_bits(seed, 2, 2));
  const std::size_t all = small_model().parameters.size();
  Growths growths = {{0, 1 + draw.below(all - 3)}};
  const std::uint64_t commits = 1 + draw.below(3);
  for (std::uint64_t i = 0; i < commits; ++i) {
    const bool last = i + 1 == commits;
    const Growth before = growths.back();
    const std::size_t more = last ? all - before.parameters : draw.below(2);
    growths.push_back({before.step + 1 + draw.below(2), before.parameters + more});
  }
  return growths;
}

TinyOptions draw_run(std::uint64_t seed) {
  Draw draw(seed);
  TinyOptions options = draw_model(seed);
  options.device.seed = seed;
  draw_device(draw, options.device);
  draw_config(draw, options.config);
  const std::array<Schedule, 4> schedules = {Schedule::serial, Schedule::blocking, Schedule::exact,
                                             Schedule::exact};
  options.config.schedule = schedules.at(draw.below(schedules.size()));
  // Shares that every choice of whole buckets can make.
  if (options.config.placement == Placement::fraction) {
    options.config.device_fraction = draw.coin() ? 1.0 : 0.0;
    options.config.keep_host_room = draw.coin();
  }
  const bool streamed = options.config.placement == Placement::device_streamed;
  if (streamed && has_lamb(options)) options.config.placement = Placement::device_resident;
  draw_trainer(draw, options);
  return options;
}

std::string text_of(const Growths& growths) {
  std::string text = "parameters";
  for (const Growth& growth : growths) {
    text += " " + std::to_string(growth.parameters) + " at step " + std::to_string(growth.step);
  }
  return text + "; ";
}

void expect_same(std::uint64_t seed) {
  const Growths growths = draw_growths(seed);
  const TinyOptions options = draw_run(seed);
  TinyOptions plain = all_from_the_start(draw_model(seed), growths);
  plain.config.schedule = Schedule::serial;
  const Trajectory reference = run_trajectory(plain, {.steps = kSteps});
  std::string problem;
  try {
    TinyTrainer trainer(options);
    const Trajectory seen =
        run_growing(trainer, growths, {.steps = kSteps, .digests = mix_bits(seed, 0, 1)});
    problem = first_difference(reference, seen);
  } catch (const std::exception& error) {
    problem = error.what();
  }
  EXPECT_EQ(problem, "") << text_of(growths) << describe(options);
}

TEST(ThawSeeds, WhenAParameterCameNeverChangesABit) {
  for_each_seed(kSeeds, expect_same);
}

}  // namespace
}  // namespace outboard::testing
