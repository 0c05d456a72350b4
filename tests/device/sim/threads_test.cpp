// SPDX-License-Identifier: Apache-2.0
// What only real time has: threads, their floating-point modes, and sleeping.
#include <gtest/gtest.h>

#include <atomic>
#include <cfenv>
#include <thread>

#include "rig.hpp"

namespace outboard::testing {
namespace {

TEST(SimThreads, KernelsRunInTheDefaultFloatEnvironment) {
  std::fenv_t saved;
  std::fegetenv(&saved);
  std::fesetround(FE_UPWARD);
  std::atomic<int> rounding{-1};
  {
    Rig rig(thread_options());
    const NativeStream s = rig.gpu.create_stream();
    rig.gpu.launch(s, 0ns, [&](sim::KernelView&) { rounding = std::fegetround(); });
    rig.gpu.synchronize(s);
  }
  EXPECT_EQ(rounding, FE_TONEAREST);
  {
    Rig rig(virtual_options());
    const NativeStream s = rig.gpu.create_stream();
    rounding = -1;
    rig.gpu.launch(s, 0ns, [&](sim::KernelView&) { rounding = std::fegetround(); });
    rig.gpu.synchronize(s);
  }
  EXPECT_EQ(rounding, FE_TONEAREST);
  EXPECT_EQ(std::fegetround(), FE_UPWARD) << "the caller keeps its own";
  std::fesetenv(&saved);
}

TEST(SimThreads, StreamsRunSideBySide) {
  Rig rig(thread_options());
  const NativeStream a = rig.gpu.create_stream();
  const NativeStream b = rig.gpu.create_stream();
  std::atomic<int> inside{0};
  const auto meet = [&](sim::KernelView&) {
    ++inside;
    while (inside < 2) std::this_thread::yield();
  };
  rig.gpu.launch(a, 0ns, meet);
  rig.gpu.launch(b, 0ns, meet);
  rig.gpu.synchronize();
  EXPECT_EQ(inside, 2);
}

TEST(SimThreads, TimedKernelsShareOneComputeEngine) {
  Rig rig(thread_options());
  std::atomic<int> inside{0};
  std::atomic<int> most{0};
  for (int i = 0; i < 4; ++i) {
    const NativeStream s = rig.gpu.create_stream();
    for (int k = 0; k < 10; ++k) {
      rig.gpu.launch(s, 20us, [&](sim::KernelView&) {
        const int now = ++inside;
        if (now > most) most = now;
        std::this_thread::yield();
        --inside;
      });
    }
  }
  rig.gpu.synchronize();
  EXPECT_EQ(most, 1);
}

TEST(SimThreads, ATimedOperationTakesAtLeastItsTime) {
  sim::Options options = thread_options();
  options.rates.link_up_bytes_per_s = 1e6;
  options.rates.copy_latency = 1ms;
  Rig rig(options);
  const NativeStream s = rig.gpu.create_stream();
  auto* a = rig.allocate<std::byte>(2000);
  const std::vector<std::byte> host(2000);
  const auto start = rig.gpu.now();
  rig.gpu.copy_to_device(a, host, s);
  rig.gpu.synchronize(s);
  EXPECT_GE(rig.gpu.now() - start, 3ms);
}

TEST(SimThreads, TheLossEndsATimedOperation) {
  sim::Options options = thread_options();
  options.faults = {{sim::Call::copy_to_host, 1, false}};
  Rig rig(options);
  const NativeStream sleeping = rig.gpu.create_stream();
  const NativeStream broken = rig.gpu.create_stream();
  auto* a = rig.allocate<std::byte>(16);
  std::vector<std::byte> host(16);
  rig.gpu.launch(sleeping, std::chrono::hours(24), [](sim::KernelView&) {});
  rig.gpu.copy_to_host(host, a, broken);
  EXPECT_THROW(rig.gpu.synchronize(sleeping), Error);
}

TEST(SimThreads, ManyThreadsMayCallAtOnce) {
  Rig rig(thread_options());
  std::atomic<int> ran{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int round = 0; round < 20; ++round) {
        const NativeStream s = rig.gpu.create_stream();
        void* memory = rig.gpu.allocate(1000);
        const device::Event event = rig.device.create_event();
        for (int i = 0; i < 5; ++i) rig.gpu.launch(s, 0ns, [&](sim::KernelView&) { ++ran; });
        rig.device.fill_zero(s, memory, 1000);
        rig.device.record(event, s);
        rig.device.synchronize(event, "a thread of the test");
        rig.gpu.destroy_stream(s);
        rig.device.destroy_event(event);
        rig.gpu.release(memory);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(ran, 400);
  const sim::Counters counters = rig.gpu.counters();
  EXPECT_EQ(counters.live_streams + counters.live_events + counters.live_allocations, 0u);
  EXPECT_EQ(counters.host_waits, 80u);
}

}  // namespace
}  // namespace outboard::testing
