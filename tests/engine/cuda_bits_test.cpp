// SPDX-License-Identifier: Apache-2.0
// The engine on the CUDA device, on a stand-in for its driver: whatever is drawn, the bits are
// those of the plainest run on the software GPU, and nothing is left behind.

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "device/cuda/cuda_backend.hpp"
#include "engine/drawn_options.hpp"
#include "engine/trajectory.hpp"
#include "fake_cuda/fake_cuda.hpp"
#include "support/seeds.hpp"

namespace outboard::testing {
namespace {

constexpr std::uint64_t kSeeds = 600;
constexpr std::uint64_t kSteps = 5;

/// A machine of one device with these options; the engine drives it as it would a GPU.
sim::Gpu play(TinyOptions& options) {
  fake_cuda::start({.devices = 1, .device = options.device});
  const auto& rates = options.device.rates.host_elems_per_s;
  const device::cuda::Clock clock = {.loop = fake_cuda::loop_of(0),
                                     .host_elems_per_s = rates.empty() ? 0.0 : rates.front()};
  options.engine_device = [clock] {
    return Device(std::make_shared<device::cuda::CudaBackend>(0, clock));
  };
  return fake_cuda::gpu_of(0);
}

Trajectory run_on_cuda(TinyOptions options, const RunOptions& run) {
  const sim::Gpu gpu = play(options);
  TinyTrainer trainer(gpu, options);
  trainer.start();
  Trajectory seen = run_trajectory(trainer, run);
  EXPECT_GT(fake_cuda::calls_of("cuLaunchKernel"), 0u) << "ran past the driver";
  return seen;
}

void expect_nothing_left(const std::string& whose) {
  const fake_cuda::Live live = fake_cuda::live();
  EXPECT_EQ(live.contexts, 0u) << whose;
  EXPECT_EQ(live.streams, 0u) << whose;
  EXPECT_EQ(live.events, 0u) << whose;
  EXPECT_EQ(live.allocations, 0u) << whose;
  EXPECT_EQ(live.modules, 0u) << whose;
  EXPECT_EQ(live.registrations, 0u) << whose;
  EXPECT_EQ(live.host_allocations, 0u) << whose;
}

TinyOptions draw_options(std::uint64_t seed) {
  Draw draw(seed);
  TinyOptions options = small_model();
  options.device.memory_bytes = std::size_t{8} << 20;
  options.device.seed = seed;
  draw_device(draw, options.device);
  draw_config(draw, options.config);
  const std::array<Schedule, 4> schedules = {Schedule::serial, Schedule::blocking, Schedule::exact,
                                             Schedule::exact};
  options.config.schedule = schedules.at(draw.below(schedules.size()));
  round_fraction(options);
  draw_trainer(draw, options);
  return options;
}

TEST(CudaBits, DelaysOrdersAndOptionsNeverChangeABit) {
  TinyOptions plain = small_model();
  plain.config.schedule = Schedule::serial;
  const Trajectory reference = run_trajectory(plain, {.steps = kSteps});
  for_each_seed(kSeeds, [&](std::uint64_t seed) {
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

TEST(CudaBits, RealThreadsDoNotEither) {
  TinyOptions plain = small_model();
  plain.config.schedule = Schedule::serial;
  const Trajectory reference = run_trajectory(plain, {.steps = kSteps});
  for (const Placement placement : {Placement::host, Placement::device_resident,
                                    Placement::device_streamed, Placement::fraction}) {
    for (const bool ring : {false, true}) {
      TinyOptions options = small_model();
      options.device = {.memory_bytes = std::size_t{8} << 20};
      options.config.placement = placement;
      if (placement == Placement::fraction) options.config.device_fraction = 0.5;
      round_fraction(options);
      if (ring) options.config.pinned_slots = 2;
      for (int repetition = 0; repetition < 5; ++repetition) {
        EXPECT_EQ(
            first_difference(reference, run_on_cuda(options, {.steps = kSteps, .digests = 0})), "")
            << describe(options);
        expect_nothing_left(describe(options));
      }
    }
  }
}

}  // namespace
}  // namespace outboard::testing
