// SPDX-License-Identifier: Apache-2.0
// A GPU as users ask for it: found, or refused with the cause; and how it lives with a framework.

#include <gtest/gtest.h>

#include <cstdint>

#include "device/backend.hpp"
#include "fake_cuda/fake_cuda.hpp"
#include "outboard/outboard.hpp"
#include "support/expect_error.hpp"

namespace outboard::testing {
namespace {

constexpr int kOutOfMemory = 2;
constexpr int kNoDevice = 100;
constexpr int kVersionMismatch = 803;

TEST(CudaDevice, IsFoundByItsNumber) {
  fake_cuda::start({.devices = 2});
  EXPECT_EQ(Device::cuda(1).name(), "stand-in 1");
  EXPECT_EQ(Device::cuda().name(), "stand-in 0");
  expect_error(ErrorCode::invalid_argument, {"no device 2", "has 2"},
               [] { (void)Device::cuda(2); });
  expect_error(ErrorCode::invalid_argument, {"no device -1"}, [] { (void)Device::cuda(-1); });
}

TEST(CudaDevice, SaysWhyThereIsNone) {
  fake_cuda::start({.devices = 1});
  fake_cuda::fail({.call = "cuInit", .nth = 1, .result = kNoDevice});
  expect_error(ErrorCode::unsupported, {"CUDA device 0", "no device"},
               [] { (void)Device::cuda(0); });
  fake_cuda::start({.devices = 1});
  fake_cuda::fail({.call = "cuInit", .nth = 1, .result = kVersionMismatch});
  expect_error(ErrorCode::unsupported, {"cuInit", "803", "reboot"}, [] { (void)Device::cuda(0); });
}

/// Another failure than that the driver has no code for the device.
TEST(CudaDevice, SaysThatItsKernelsFailedToLoad) {
  fake_cuda::start({.devices = 1});
  fake_cuda::fail({.call = "cuModuleLoadData", .nth = 1, .result = kOutOfMemory});
  expect_error(ErrorCode::device_failure, {"cuModuleLoadData", "out of memory"},
               [] { (void)Device::cuda(0); });
  EXPECT_EQ(fake_cuda::live().contexts, 0u);
}

/// Work on the default stream, which waits for a flag that only the engine's own upload can lead
/// to: if the engine's streams took turns with it, nobody would ever move.
TEST(CudaDevice, ItsStreamsNeverTakeTurnsWithTheDefaultStream) {
  fake_cuda::start({.devices = 1});
  const auto backend = Device::cuda(0).backend();
  const NativeStream own = backend->create_stream("own");
  const device::Flag flag = backend->create_flag();
  backend->wait_flag(NativeStream{0}, flag, 1);
  void* const memory = backend->allocate(256);
  backend->fill_zero(own, memory, 256);
  const device::Event done = backend->create_event();
  backend->record(done, own);
  backend->synchronize(done, "the test");
  backend->write_flag(flag, 1);
  for (const std::uint64_t value : {0U, 1U, 2U}) {
    backend->fill_zero(NativeStream{value}, memory, 256);
    backend->record(done, NativeStream{value});
    backend->synchronize(done, "the test");
  }
  backend->release(memory);
  backend->destroy_flag(flag);
  backend->destroy_event(done);
  backend->destroy_stream(own);
}

}  // namespace
}  // namespace outboard::testing
