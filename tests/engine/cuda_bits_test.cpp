// SPDX-License-Identifier: Apache-2.0
// The engine on the CUDA device, on a stand-in for its driver: whatever is drawn, the bits are
// those of the plainest run on the software GPU, and nothing is left behind.

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>

#include "engine/cuda_runs.hpp"
#include "engine/drawn_options.hpp"
#include "engine/trajectory.hpp"
#include "support/seeds.hpp"

namespace outboard::testing {
namespace {

constexpr std::uint64_t kSeeds = 60, kEverySeed = 600;

TEST(CudaBits, DelaysOrdersAndOptionsNeverChangeABit) {
  TinyOptions plain = small_model();
  plain.config.schedule = Schedule::serial;
  const Trajectory reference = run_trajectory(plain, {.steps = kSteps});
  for_each_seed(try_everything() ? kEverySeed : kSeeds, [&](std::uint64_t seed) {
    const TinyOptions options = draw_options(seed);
    std::string problem;
    try {
      const Trajectory seen =
          run_on_cuda(options, {.steps = kSteps, .digests = mix_bits(seed, 0, 1)});
      problem = first_difference(reference, seen);
    } catch (const std::exception& error) {
      problem = error.what();
    }
    EXPECT_EQ(problem, "") << describe(options);
    expect_nothing_left(describe(options));
  });
}

}  // namespace
}  // namespace outboard::testing
