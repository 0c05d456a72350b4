// SPDX-License-Identifier: Apache-2.0
// After warm-up the device allocates no host memory.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "rig.hpp"

namespace {

std::atomic<std::uint64_t> allocations{0};

void* counted(std::size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(std::size_t bytes) {
  return counted(bytes);
}
void* operator new[](std::size_t bytes) {
  return counted(bytes);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace outboard::testing {
namespace {

struct Bench : Rig {
  explicit Bench(const sim::Options& options)
      : Rig(options), down(gpu.create_stream()), up(gpu.create_stream()) {
    memory = allocate<std::byte>(4096);
    flag = device.create_flag();
    for (auto& event : events) event = device.create_event();
  }
  /// A step's worth of work of every kind.
  void step() {
    const core::Callback callback{
        [](void* count, std::uint64_t) noexcept { ++*static_cast<std::atomic<int>*>(count); },
        &called, 0};
    for (const device::Event event : events) {
      device.fill(down, {memory, simd::Format::f16}, 100, 1);
      device.reduce_gradient(down, {memory, simd::Format::f16}, 100, memory + 1024);
      device.copy_to_host(host, memory, down);
      device.record(event, down);
      device.notify(event, callback);
      device.wait_flag(up, flag, ++round);
      device.wait_event(up, event);
      device.copy_to_device(memory + 2048, host, up);
      device.write_flag(flag, round);
    }
    gpu.synchronize();
    device.synchronize(events[0], "the test");
  }
  NativeStream down, up;
  std::byte* memory;
  device::Flag flag;
  std::uint32_t round = 0;
  std::array<device::Event, 100> events;
  std::vector<std::byte> host = std::vector<std::byte>(512);
  std::atomic<int> called{0};
};

std::uint64_t allocations_of_a_warm_step(const sim::Options& options, std::size_t spans = 0) {
  Bench bench(options);
  bench.gpu.start_recording(spans);
  for (int i = 0; i < 10; ++i) bench.step();
  const std::uint64_t before = allocations;
  for (int i = 0; i < 10; ++i) bench.step();
  return allocations - before;
}

TEST(SimAllocations, TheCounterCounts) {
  const std::uint64_t before = allocations;
  const auto memory = std::make_unique<int>(1);
  EXPECT_EQ(allocations - before, 1u);
}

TEST(SimAllocations, WarmStepsAllocateNothingInVirtualTime) {
  EXPECT_EQ(allocations_of_a_warm_step(virtual_options()), 0u);
}

TEST(SimAllocations, RecordingAllocatesNothingOnceStarted) {
  EXPECT_EQ(allocations_of_a_warm_step(virtual_options(), 5000), 0u);
}

// How far a thread falls behind differs from step to step, so its queue may still grow once.
TEST(SimAllocations, WarmStepsAllocateNothingButAGrowingQueueInRealTime) {
  EXPECT_LE(allocations_of_a_warm_step(thread_options()), 4u);
}

}  // namespace
}  // namespace outboard::testing
