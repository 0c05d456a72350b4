// SPDX-License-Identifier: Apache-2.0
// Every call of the driver's fails once, from the first of a device to the last of its end, in a
// way that passes and in one that stays: the error names the call, or the run is as if nothing had
// been.

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <set>
#include <string>

#include "device/cuda/cuda_backend.hpp"
#include "engine/drawn_options.hpp"
#include "engine/trajectory.hpp"
#include "fake_cuda/fake_cuda.hpp"
#include "support/seeds.hpp"

namespace outboard::testing {
namespace {

constexpr int kOutOfMemory = 2;
constexpr int kIllegalAddress = 700;
constexpr std::uint64_t kSteps = 3;
constexpr std::uint64_t kStride = 7;  // of the calls that fail, unless all do

TinyOptions failing_model(Placement placement) {
  TinyOptions options;
  options.device = virtual_device(3);
  options.device.memory_bytes = std::size_t{2} << 20;
  options.config.max_grad_norm = 1.0;
  options.config.bucket_bytes = std::size_t{8} << 10;
  options.config.host.threads_per_node = 1;
  options.config.host.synthetic_topology = "numa:1 core:1 pu:1";
  options.config.placement = placement;
  if (placement == Placement::fraction) options.config.device_fraction = 0.5;
  const std::array<std::uint64_t, 3> sizes = {4096, 300, 5000};
  add_parameters(options, sizes);
  round_fraction(options);
  return options;
}

struct Ending {
  std::string error;  ///< "": none
  std::string digests;
};

/// Makes the device, trains, and gives everything back.
Ending run(TinyOptions options) {
  const device::cuda::Clock clock = {.loop = fake_cuda::loop_of(0)};
  options.engine_device = [clock] {
    return Device(std::make_shared<device::cuda::CudaBackend>(0, clock));
  };
  Ending ending;
  try {
    TinyTrainer trainer(fake_cuda::gpu_of(0), options);
    trainer.start();
    for (std::uint64_t s = 0; s < kSteps; ++s) {
      ending.digests += std::to_string(trainer.step().digest) + " ";
    }
  } catch (const std::exception& error) {
    ending.error = error.what();
  }
  return ending;
}

/// Calls that give something back: what they fail to give back stays.
bool gives_back(const std::string& call) {
  static const std::set<std::string> calls = {
      "cuMemFree_v2",        "cuMemFreeHost",       "cuStreamDestroy_v2",
      "cuEventDestroy_v2",   "cuModuleUnload",      "cuDevicePrimaryCtxRelease_v2",
      "cuMemHostUnregister", "cuCtxPushCurrent_v2", "cuStreamSynchronize"};
  return calls.contains(call);
}

std::uint64_t sum(const fake_cuda::Live& live) {
  return live.contexts + live.streams + live.events + live.allocations + live.modules +
         live.registrations + live.host_allocations;
}

void expect_every_call_may_fail(Placement placement, int result) {
  const TinyOptions options = failing_model(placement);
  fake_cuda::start({.devices = 1, .device = options.device});
  const Ending sound = run(options);
  ASSERT_EQ(sound.error, "");
  const std::uint64_t calls = fake_cuda::calls_made();
  std::uint64_t tried = 0, named = 0;
  const std::uint64_t stride = try_everything() ? 1 : kStride;
  // Another start each time: what one placement leaves out, another has.
  const std::uint64_t first = stride == 1 ? 1 : 1 + static_cast<std::uint64_t>(placement) % stride;
  for (std::uint64_t n = first; n <= calls; n += stride, ++tried) {
    fake_cuda::start({.devices = 1, .device = options.device});
    fake_cuda::fail({.call = "", .nth = n, .result = result});
    const Ending ending = run(options);
    const std::string call = fake_cuda::failed_call();
    SCOPED_TRACE("call " + std::to_string(n) + ", " + call + ": " + ending.error);
    if (ending.error.empty()) {
      EXPECT_EQ(ending.digests, sound.digests);
    } else {
      const bool is_named = ending.error.find(call) != std::string::npos ||
                            ending.error.find("device memory") != std::string::npos ||
                            (gives_back(call) && ending.error.find("ILLEGAL") != std::string::npos);
      EXPECT_TRUE(is_named);
      ++named;
    }
    if (result == kOutOfMemory && !gives_back(call)) {
      EXPECT_EQ(sum(fake_cuda::live()), 0u);
    }
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(named, tried / 2);
  std::printf("%llu of %llu calls made to fail, %llu errors\n",
              static_cast<unsigned long long>(tried), static_cast<unsigned long long>(calls),
              static_cast<unsigned long long>(named));
}

TEST(CudaFailure, OfAnyCallThatPassesIsNamed) {
  for (const Placement placement : {Placement::host, Placement::device_resident,
                                    Placement::device_streamed, Placement::fraction}) {
    expect_every_call_may_fail(placement, kOutOfMemory);
  }
}

TEST(CudaFailure, OfAnyCallThatStaysIsNamed) {
  for (const Placement placement : {Placement::host, Placement::device_resident,
                                    Placement::device_streamed, Placement::fraction}) {
    expect_every_call_may_fail(placement, kIllegalAddress);
  }
}

}  // namespace
}  // namespace outboard::testing
