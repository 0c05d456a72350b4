// SPDX-License-Identifier: Apache-2.0
// The virtual clock, to the nanosecond.
#include <gtest/gtest.h>

#include "rig.hpp"

namespace outboard::testing {
namespace {

sim::Options rated() {
  sim::Options options = virtual_options();
  options.rates.link_down_bytes_per_s = 1e9;  // a byte per ns
  options.rates.link_up_bytes_per_s = 0.5e9;  // two ns per byte
  options.rates.device_bytes_per_s = 10e9;    // ten bytes per ns
  options.rates.copy_latency = 100ns;
  return options;
}

struct Timed : Rig {
  explicit Timed(const sim::Options& options)
      : Rig(options), a(gpu.create_stream("a")), b(gpu.create_stream("b")) {
    memory = allocate<std::byte>(100000);
  }
  sim::Duration finished() {
    gpu.synchronize();
    return gpu.now();
  }
  NativeStream a, b;
  std::byte* memory;
  std::vector<std::byte> host = std::vector<std::byte>(10000);
  std::vector<std::byte> other = std::vector<std::byte>(10000);
};

TEST(VirtualTime, ACopyTakesLatencyPlusBytesOverRate) {
  Timed down(rated());
  down.gpu.copy_to_host(down.host, down.memory, down.a);
  EXPECT_EQ(down.finished(), 10100ns);
  Timed up(rated());
  up.gpu.copy_to_device(up.memory, up.host, up.a);
  EXPECT_EQ(up.finished(), 20100ns);
  Timed on(rated());
  on.device.copy_on_device(on.memory, on.memory + 50000, 5000, on.a);  // reads and writes
  EXPECT_EQ(on.finished(), 1000ns);
}

TEST(VirtualTime, BothDirectionsRunAtOnceEachDirectionOneByOne) {
  Timed both(rated());
  both.gpu.copy_to_host(both.host, both.memory, both.a);
  both.gpu.copy_to_device(both.memory + 50000, both.other, both.b);
  EXPECT_EQ(both.finished(), 20100ns);
  Timed same(rated());
  same.gpu.copy_to_host(same.host, same.memory, same.a);
  same.gpu.copy_to_host(same.other, same.memory + 50000, same.b);
  EXPECT_EQ(same.finished(), 20200ns);
}

TEST(VirtualTime, KernelsOfAllStreamsShareTheComputeEngineCopiesDoNot) {
  Timed rig(rated());
  rig.gpu.launch(rig.a, 5000ns, [](sim::KernelView&) {});
  rig.gpu.launch(rig.b, 7000ns, [](sim::KernelView&) {});
  const NativeStream copies = rig.gpu.create_stream("copies");
  rig.gpu.copy_to_host(rig.host, rig.memory, copies);
  rig.gpu.synchronize(copies);
  EXPECT_EQ(rig.gpu.now(), 10100ns);
  EXPECT_EQ(rig.finished(), 12000ns);
}

TEST(VirtualTime, ElapsedTimeIsTheClocksBetweenTwoEvents) {
  Timed rig(rated());
  const device::Event first = rig.device.create_timed_event();
  const device::Event last = rig.device.create_timed_event();
  rig.gpu.launch(rig.a, 3000ns, [](sim::KernelView&) {});
  rig.device.record(first, rig.a);
  rig.gpu.launch(rig.a, 7000ns, [](sim::KernelView&) {});
  rig.device.record(last, rig.a);
  EXPECT_EQ(rig.finished(), 10000ns);
  EXPECT_EQ(rig.device.elapsed_us(first, last), 7.0);
  EXPECT_EQ(rig.device.elapsed_us(last, first), -7.0);
}

TEST(VirtualTime, EngineKernelsTakeTheBytesTheyTouch) {
  const auto time_of = [](auto&& queue) {
    Timed rig(rated());
    queue(rig);
    return rig.finished();
  };
  using simd::Format;
  const auto filled = [](Format format) {
    return [format](Timed& r) { r.device.fill(r.a, {r.memory, format}, 1000, 1); };
  };
  const auto widened = [](Format format) {
    return [format](Timed& r) {
      r.device.to_float(r.a, r.memory + 8192, {r.memory, format}, 1000);
    };
  };
  const auto reduced = [](Format format) {
    return [format](Timed& r) {
      r.device.reduce_gradient(r.a, {r.memory, format}, 1000, r.memory + 8192);
    };
  };
  EXPECT_EQ(time_of([](Timed& r) { r.device.fill_zero(r.a, r.memory, 1000); }), 100ns);
  EXPECT_EQ(time_of(filled(Format::f16)), 200ns);
  EXPECT_EQ(time_of(filled(Format::f32)), 400ns);
  EXPECT_EQ(time_of(widened(Format::bf16)), 600ns);
  EXPECT_EQ(time_of(widened(Format::f32)), 800ns);
  EXPECT_EQ(time_of(reduced(Format::f16)), 200ns);
  EXPECT_EQ(time_of(reduced(Format::f32)), 400ns);
}

TEST(VirtualTime, UpdatesTakeTheBytesTheyTouch) {
  struct Case {
    simd::RuleScalars scalars;
    std::size_t states = 0;
    simd::Format format = simd::Format::f16;
    bool ema = false;
    sim::Duration time{0};
  };
  const Case cases[] = {
      {simd::AdamWScalars{}, 2, simd::Format::f16, false, 2800ns},
      {simd::AdamWScalars{}, 2, simd::Format::bf16, true, 3600ns},
      {simd::LionScalars{}, 1, simd::Format::f32, false, 2400ns},
      {simd::SgdScalars{}, 0, simd::Format::f16, false, 1200ns},
  };
  for (const Case& c : cases) {
    Timed rig(rated());
    std::byte* m = rig.memory;
    device::DeviceUpdate update;
    update.grad = {m, c.format};
    update.weight = {m + 4 * 8192, c.format};
    update.param = m + 8192;
    for (std::size_t i = 0; i < c.states; ++i) update.state[i] = m + (2 + i) * 8192;
    if (c.ema) update.ema = m + 5 * 8192;
    update.elems = 1000;
    update.scalars = c.scalars;
    rig.device.update(rig.a, update);
    EXPECT_EQ(rig.finished(), c.time);
  }
}

TEST(VirtualTime, AStreamAddsUpAndAnEventCarriesItsTime) {
  Timed rig(rated());
  const sim::EventId event = rig.gpu.create_event();
  rig.gpu.launch(rig.a, 3000ns, [](sim::KernelView&) {});
  rig.gpu.copy_to_host(rig.host, rig.memory, rig.a);  // until 13100
  rig.gpu.record(event, rig.a);
  rig.gpu.wait_event(rig.b, event);
  rig.gpu.launch(rig.b, 900ns, [](sim::KernelView&) {});
  EXPECT_EQ(rig.finished(), 14000ns);
}

TEST(VirtualTime, WithoutRatesNothingTakesTime) {
  Timed rig(virtual_options());
  rig.gpu.copy_to_device(rig.memory, rig.host, rig.a);
  rig.device.fill_zero(rig.a, rig.memory, 1000);
  rig.gpu.copy_to_host(rig.host, rig.memory, rig.a);
  EXPECT_EQ(rig.finished(), 0ns);
}

TEST(VirtualTime, NothingRunsBeforeSomebodyWaits) {
  Timed rig(virtual_options());
  bool ran = false;
  rig.gpu.launch(rig.a, 10ns, [&](sim::KernelView&) { ran = true; });
  EXPECT_FALSE(ran);
  EXPECT_EQ(rig.gpu.now(), 0ns);
  EXPECT_EQ(rig.finished(), 10ns);
  EXPECT_TRUE(ran);
}

TEST(VirtualTime, RandomDelaysStayBelowTheirLimitAndReplay) {
  const auto run = [](std::uint64_t seed) {
    sim::Options options = rated();
    options.seed = seed;
    options.max_random_delay = 1000ns;
    Timed rig(options);
    rig.gpu.copy_to_host(rig.host, rig.memory, rig.a);
    return rig.finished();
  };
  std::vector<sim::Duration> times;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    times.push_back(run(seed));
    EXPECT_EQ(times.back(), run(seed)) << "seed " << seed;
    EXPECT_GE(times.back(), 10100ns);
    EXPECT_LE(times.back(), 11100ns);
  }
  EXPECT_NE(*std::min_element(times.begin(), times.end()),
            *std::max_element(times.begin(), times.end()));
}

TEST(VirtualTime, CountersSayWhatCrossedTheLink) {
  Timed rig(rated());
  rig.gpu.copy_to_host(rig.host, rig.memory, rig.a);
  rig.gpu.copy_to_device(rig.memory, rig.host, rig.a);
  rig.gpu.copy_to_device(rig.memory, std::span(rig.host).first(10), rig.a);
  rig.device.copy_on_device(rig.memory, rig.memory + 512, 100, rig.a);
  EXPECT_EQ(rig.gpu.counters().copies_to_host, 0u) << "nothing has run yet";
  rig.gpu.synchronize(rig.a);
  const sim::Counters counters = rig.gpu.counters();
  EXPECT_EQ(counters.copies_to_host, 1u);
  EXPECT_EQ(counters.copies_to_device, 2u);
  EXPECT_EQ(counters.bytes_to_host, 10000u);
  EXPECT_EQ(counters.bytes_to_device, 10010u);
  EXPECT_EQ(counters.host_waits, 1u);
  EXPECT_EQ(counters.live_allocations, 1u);
  EXPECT_EQ(counters.live_streams, 2u);
}

}  // namespace
}  // namespace outboard::testing
