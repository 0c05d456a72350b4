// SPDX-License-Identifier: Apache-2.0
/// Runs of the engine on the CUDA device, on a stand-in for its driver.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "device/cuda/cuda_backend.hpp"
#include "engine/drawn_options.hpp"
#include "engine/trajectory.hpp"
#include "fake_cuda/fake_cuda.hpp"

namespace outboard::testing {

inline constexpr std::uint64_t kSteps = 5;

/// A machine of one device with these options; the engine drives it as it would a GPU.
inline sim::Gpu play(TinyOptions& options, bool kernels_load = true) {
  fake_cuda::start({.devices = 1, .device = options.device, .kernels_load = kernels_load});
  const auto& rates = options.device.rates.host_elems_per_s;
  const device::cuda::Clock clock = {.loop = fake_cuda::loop_of(0),
                                     .host_elems_per_s = rates.empty() ? 0.0 : rates.front()};
  options.engine_device = [clock] {
    return Device(std::make_shared<device::cuda::CudaBackend>(0, clock));
  };
  return fake_cuda::gpu_of(0);
}

inline Trajectory run_on_cuda(TinyOptions options, const RunOptions& run) {
  const sim::Gpu gpu = play(options);
  TinyTrainer trainer(gpu, options);
  trainer.start();
  Trajectory seen = run_trajectory(trainer, run);
  EXPECT_GT(fake_cuda::calls_of("cuLaunchKernel"), 0u) << "ran past the driver";
  return seen;
}

inline void expect_nothing_left(const std::string& whose) {
  const fake_cuda::Live live = fake_cuda::live();
  EXPECT_EQ(live.contexts, 0u) << whose;
  EXPECT_EQ(live.streams, 0u) << whose;
  EXPECT_EQ(live.events, 0u) << whose;
  EXPECT_EQ(live.allocations, 0u) << whose;
  EXPECT_EQ(live.modules, 0u) << whose;
  EXPECT_EQ(live.registrations, 0u) << whose;
  EXPECT_EQ(live.host_allocations, 0u) << whose;
}

/// Everything but what the driver can load.
inline TinyOptions draw_options(std::uint64_t seed) {
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

}  // namespace outboard::testing
