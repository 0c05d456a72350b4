// SPDX-License-Identifier: Apache-2.0
// What the CUDA device does without: kernels that the driver does not load, and queues that end.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "device/backend.hpp"
#include "engine/cuda_runs.hpp"
#include "simd/reduce.hpp"
#include "support/expect_error.hpp"
#include "support/seeds.hpp"

namespace outboard::testing {
namespace {

TinyOptions on_the_host(std::uint64_t seed) {
  TinyOptions options = draw_options(seed);
  options.config.placement = seed % 2 == 0 ? Placement::host : Placement::automatic;
  options.config.device_fraction = 0.0;
  return options;
}

/// Packed gradients, rings and accumulation among what is drawn; a step overflows.
TEST(CudaFallback, WithoutKernelsTheBitsAreTheSame) {
  TinyOptions plain = small_model();
  plain.config.schedule = Schedule::serial;
  const Trajectory reference = run_trajectory(plain, {.steps = kSteps});
  for_each_seed(try_everything() ? 200 : 30, [&](std::uint64_t seed) {
    TinyOptions options = on_the_host(seed);
    const sim::Gpu gpu = play(options, false);
    {
      TinyTrainer trainer(gpu, options);
      trainer.start();
      EXPECT_EQ(first_difference(reference, run_trajectory(trainer, {.steps = kSteps})), "")
          << describe(options);
    }
    EXPECT_EQ(fake_cuda::calls_of("cuLaunchKernel"), 0u);
    expect_nothing_left(describe(options));
  });
}

TEST(CudaFallback, WithoutKernelsThereIsOneWarning) {
  TinyOptions options = small_model();
  std::vector<std::string> warnings;
  options.config.log = [&](LogLevel level, std::string_view line) {
    const bool is_it = line.find("cuModuleLoadData") != std::string_view::npos;
    if (level == LogLevel::warning && is_it) warnings.emplace_back(line);
  };
  const sim::Gpu gpu = play(options, false);
  TinyTrainer trainer(gpu, options);
  trainer.start();
  for (int step = 0; step < 3; ++step) (void)trainer.step();
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("no kernel image"), std::string::npos) << warnings[0];
  EXPECT_NE(warnings[0].find("on the host"), std::string::npos) << warnings[0];
}

TEST(CudaFallback, WithoutKernelsNoStateIsOnTheDevice) {
  for (const Placement placement :
       {Placement::device_resident, Placement::device_streamed, Placement::fraction}) {
    TinyOptions options = small_model();
    options.config.placement = placement;
    if (placement == Placement::fraction) options.config.device_fraction = 0.5;
    round_fraction(options);
    const sim::Gpu gpu = play(options, false);
    TinyTrainer trainer(gpu, options);
    expect_error(ErrorCode::unsupported,
                 {"commit()", "cuModuleLoadData", "no kernel image", "Placement::host"},
                 [&] { trainer.start(); });
  }
  TinyOptions options = small_model();
  const sim::Gpu gpu = play(options, false);
  TinyTrainer trainer(gpu, options);
  trainer.start();
  expect_error(ErrorCode::unsupported, {"set_placement()", "no kernel image"},
               [&] { trainer.engine().set_placement({.placement = Placement::device_resident}); });
  EXPECT_TRUE(trainer.step().result.applied());
}

/// Several pieces, in every format, with elements that are not finite in the later ones.
TEST(CudaFallback, NormsOfLongGradientsAreTheKernels) {
  fake_cuda::start({.devices = 1, .kernels_load = false});
  const auto backend = Device::cuda(0).backend();
  const NativeStream stream = backend->create_stream("norms");
  constexpr std::uint64_t kElems = 600'011;
  for (const simd::Format format : {simd::Format::f16, simd::Format::bf16, simd::Format::f32}) {
    const std::size_t bytes = kElems * simd::format_bytes(format);
    std::vector<std::uint16_t> host(bytes / 2);
    for (std::size_t i = 0; i < host.size(); ++i) {
      host[i] = static_cast<std::uint16_t>(mix_bits(i, 1, 2) & 0xBBFFU);
    }
    const std::size_t last = host.size() - 1;
    host[last] = host[last - 4] = 0x7FC0;
    const auto want = simd::reduce_gradient({host.data(), format}, kElems);
    ASSERT_EQ(want.non_finite, 2u);
    void* const grad = backend->allocate(bytes);
    void* const packed = backend->allocate(bytes);
    void* const scalars = backend->allocate(sizeof(device::GradientScalars));
    std::vector<std::uint16_t> back(host.size());
    device::GradientScalars found;
    backend->copy_to_device(grad, std::as_bytes(std::span(host)), stream);
    backend->pack_gradient(stream, {grad, format}, kElems, packed, scalars);
    backend->copy_to_host(std::as_writable_bytes(std::span(&found, 1)), scalars, stream);
    backend->copy_to_host(std::as_writable_bytes(std::span(back)), packed, stream);
    const device::Event done = backend->create_event();
    backend->record(done, stream);
    backend->synchronize(done, "the test");
    EXPECT_EQ(found.sum_of_squares, want.sum_of_squares);
    EXPECT_EQ(found.non_finite, want.non_finite);
    EXPECT_EQ(found.first_non_finite, want.first_non_finite << 1 | (want.first_is_nan ? 1u : 0u));
    EXPECT_EQ(back, host);
    for (void* const memory : {grad, packed, scalars}) backend->release(memory);
    backend->destroy_event(done);
  }
  expect_error(ErrorCode::unsupported, {"to_float", "no kernel image"}, [&] {
    backend->to_float(stream, nullptr, {nullptr, simd::Format::f16}, 0);
  });
  backend->destroy_stream(stream);
}

std::string uploads_of(std::uint64_t tensors) {
  TinyOptions options = small_model();
  options.device.memory_bytes = std::size_t{64} << 20;
  options.config.bucket_bytes = std::size_t{128} << 10;
  options.parameters.clear();
  options.injected.clear();
  options.has_gradient = {};
  const std::vector<std::uint64_t> sizes(tensors, 32'768);
  add_parameters(options, sizes);
  const sim::Gpu gpu = play(options);
  TinyTrainer trainer(gpu, options);
  trainer.start();
  EXPECT_TRUE(trainer.step().result.applied());
  EXPECT_TRUE(trainer.step().result.applied());
  const std::string text = trainer.engine().describe();
  const std::size_t at = text.find("uploads: ");
  return text.substr(at, text.find('\n', at) - at);
}

/// A driver that has no room for one more operation keeps the call, and with it what would raise
/// the flags that the stream waits for.
TEST(CudaFallback, NoUploadIsQueuedBehindAFlag) {
  EXPECT_EQ(uploads_of(1), "uploads: queued when updated");
  EXPECT_EQ(uploads_of(280), "uploads: queued when updated");
}

}  // namespace
}  // namespace outboard::testing
