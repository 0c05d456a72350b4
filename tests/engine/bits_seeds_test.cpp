// SPDX-License-Identifier: Apache-2.0
// Hundreds of small runs in virtual time whose options, speeds, delays and event orders are drawn
// from a seed: each must have the bits of the plainest run.

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>
#include <utility>

#include "engine/drawn_options.hpp"
#include "engine/splits.hpp"
#include "engine/trajectory.hpp"
#include "support/seeds.hpp"

namespace outboard::testing {
namespace {

constexpr std::uint64_t kSeeds = 800;
constexpr std::uint64_t kSteps = 5;

TinyOptions draw_options(std::uint64_t seed) {
  Draw draw(seed);
  TinyOptions options = small_model();
  options.device.seed = seed;
  draw_device(draw, options.device);
  draw_config(draw, options.config);
  round_fraction(options);
  const std::array<Schedule, 4> schedules = {Schedule::serial, Schedule::blocking, Schedule::exact,
                                             Schedule::exact};
  options.config.schedule = schedules.at(draw.below(schedules.size()));
  draw_trainer(draw, options);
  return options;
}

void expect_same(const Trajectory& reference, std::uint64_t seed) {
  const TinyOptions options = draw_options(seed);
  std::string problem;
  try {
    const Trajectory seen =
        run_trajectory(options, {.steps = kSteps, .digests = mix_bits(seed, 0, 1)});
    problem = first_difference(reference, seen);
  } catch (const std::exception& error) {
    problem = error.what();
  }
  EXPECT_EQ(problem, "") << describe(options);
}

TEST(BitsSeeds, DelaysOrdersAndOptionsNeverChangeABit) {
  TinyOptions plain = small_model();
  plain.config.schedule = Schedule::serial;
  const Trajectory reference = run_trajectory(plain, {.steps = kSteps});
  ASSERT_TRUE(reference[2].skipped);
  ASSERT_GT(reference[0].grad_norm, 1.0) << "clipping has no effect";
  for_each_seed(kSeeds, [&](std::uint64_t seed) { expect_same(reference, seed); });
}

}  // namespace
}  // namespace outboard::testing
