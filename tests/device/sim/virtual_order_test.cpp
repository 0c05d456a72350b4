// SPDX-License-Identifier: Apache-2.0
// Virtual time makes every order that is not promised happen, under some seed, and no other.
#include <gtest/gtest.h>

#include <array>
#include <set>
#include <string>

#include "rig.hpp"

namespace outboard::testing {
namespace {

constexpr std::uint64_t kSeeds = 64;

TEST(VirtualOrder, TheSeedPicksAmongReadyKernels) {
  std::set<std::string> orders;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const auto run = [seed] {
      Rig rig(virtual_options(seed));
      std::string order;
      for (const char name : {'a', 'b', 'c'}) {
        const NativeStream s = rig.gpu.create_stream();
        rig.gpu.launch(s, 10ns, [&order, name](sim::KernelView&) { order += name; });
      }
      rig.gpu.synchronize();
      return order;
    };
    const std::string order = run();
    EXPECT_EQ(order, run()) << "seed " << seed;
    orders.insert(order);
  }
  EXPECT_EQ(orders.size(), 6u) << "all orders of three";
}

// A trainer's second kernel and an urgent one that waits for the first could start at one moment.
TEST(VirtualOrder, UrgentWorkGoesFirstUnlessDelaysAreInjected) {
  std::array<std::set<std::string>, 2> orders;
  for (const bool delays : {false, true}) {
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
      sim::Options options = virtual_options(seed);
      if (delays) options.max_random_delay = 5ns;
      Rig rig(options);
      std::string order;
      const auto launch = [&](NativeStream on, char name) {
        rig.gpu.launch(on, 10ns, [&order, name](sim::KernelView&) { order += name; });
      };
      const NativeStream trainer = rig.gpu.create_stream();
      const NativeStream urgent = rig.device.create_urgent_stream("urgent");
      const device::Event first = rig.device.create_event();
      launch(trainer, 'a');
      rig.device.record(first, trainer);
      launch(trainer, 'b');
      launch(trainer, 'c');
      rig.device.wait_event(urgent, first);
      launch(urgent, 'u');
      rig.gpu.synchronize();
      rig.device.destroy_stream(urgent);
      orders.at(delays ? 1 : 0).insert(order);
    }
  }
  EXPECT_EQ(orders[0], std::set<std::string>{"aubc"});
  EXPECT_TRUE(orders[1].contains("aubc") && orders[1].contains("abuc"));
}

// A reader that does not wait finds neither the old contents nor, ever, the new ones in time.
TEST(VirtualOrder, ACopysDestinationIsPoisonUntilTheCopyEnds) {
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    sim::Options options = virtual_options(seed);
    options.rates.link_down_bytes_per_s = 1e9;
    Rig rig(options);
    const NativeStream down = rig.gpu.create_stream("down");
    const NativeStream clock = rig.gpu.create_stream("clock");
    auto* memory = rig.allocate<std::uint16_t>(500);
    rig.device.fill(down, {memory, simd::Format::f16}, 500, 0x3C00);
    rig.gpu.synchronize();
    std::vector<std::uint16_t> host(500, 0x1234);
    rig.gpu.copy_to_host(bytes_of(host), memory, down);  // 1000 ns
    rig.gpu.launch(clock, 999ns, [](sim::KernelView&) {});
    rig.gpu.synchronize(clock);
    EXPECT_EQ(host, std::vector<std::uint16_t>(500, 0xFFFF)) << "seed " << seed;
    rig.gpu.synchronize(down);
    EXPECT_EQ(host, std::vector<std::uint16_t>(500, 0x3C00)) << "seed " << seed;
  }
}

TEST(VirtualOrder, ADestinationIsLeftAloneWhileItsCopyIsBehindOthers) {
  Rig rig(virtual_options());
  const NativeStream s = rig.gpu.create_stream();
  auto* memory = rig.allocate<std::uint16_t>(10);
  std::vector<std::uint16_t> host(10, 0x1234);
  const device::Flag hold = rig.device.create_flag();
  rig.device.fill(s, {memory, simd::Format::f16}, 10, 1);
  rig.device.wait_flag(s, hold, 1);
  rig.gpu.copy_to_host(bytes_of(host), memory, s);
  const NativeStream other = rig.gpu.create_stream();
  rig.gpu.launch(other, 1000ns, [](sim::KernelView&) {});
  rig.gpu.synchronize(other);
  EXPECT_EQ(host, std::vector<std::uint16_t>(10, 0x1234)) << "the flag still protects it";
  rig.device.write_flag(hold, 1);
  rig.gpu.synchronize(s);
  EXPECT_EQ(host, std::vector<std::uint16_t>(10, 1));
}

// What the host writes into a copy's source while the copy is under way arrives under some seeds
// and not under others.
TEST(VirtualOrder, ASourceIsReadAtTheStartOrAtTheEnd) {
  std::set<std::uint16_t> arrived;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    sim::Options options = virtual_options(seed);
    options.rates.link_up_bytes_per_s = 1e9;
    Rig rig(options);
    const NativeStream up = rig.gpu.create_stream("up");
    const NativeStream clock = rig.gpu.create_stream("clock");
    auto* memory = rig.allocate<std::uint16_t>(500);
    std::vector<std::uint16_t> host(500, 1);
    rig.gpu.copy_to_device(memory, bytes_of(host), up);  // 1000 ns
    rig.gpu.launch(clock, 500ns, [](sim::KernelView&) {});
    rig.gpu.synchronize(clock);
    host.assign(500, 2);
    std::vector<std::uint16_t> back(500);
    rig.gpu.copy_to_host(bytes_of(back), memory, up);
    rig.gpu.synchronize(up);
    arrived.insert(back[0]);
  }
  EXPECT_EQ(arrived, (std::set<std::uint16_t>{1, 2}));
}

TEST(VirtualOrder, AKernelTakesEffectAtTheStartOrAtTheEnd) {
  std::set<std::int64_t> at;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    Rig rig(virtual_options(seed));
    const NativeStream s = rig.gpu.create_stream();
    std::int64_t when = -1;
    rig.gpu.launch(s, 700ns, [&](sim::KernelView&) { when = rig.device.now_ns(); });
    rig.gpu.synchronize(s);
    at.insert(when);
  }
  EXPECT_EQ(at, (std::set<std::int64_t>{0, 700}));
}

TEST(VirtualOrder, ADeadlockNamesTheBlockedStreamsAndTheSeed) {
  Rig rig(virtual_options(31337));
  const NativeStream up = rig.gpu.create_stream("uploads");
  const NativeStream next = rig.gpu.create_stream("forward");
  const device::Flag flag = rig.device.create_flag();
  const sim::EventId event = rig.gpu.create_event();
  rig.device.wait_flag(up, flag, 4);
  rig.gpu.record(event, up);
  rig.gpu.wait_event(next, event);
  rig.gpu.launch(next, 0ns, [](sim::KernelView&) {});
  expect_error(ErrorCode::deadlock,
               {"31337", "the trainer waits for a stream", "'uploads' (2", "to reach 4, which is 0",
                "'forward' (2", "operation 2 of stream 'uploads'"},
               [&] { rig.gpu.synchronize(next); });
  EXPECT_FALSE(rig.device.lost());
  rig.device.write_flag(flag, 4);
  EXPECT_NO_THROW(rig.gpu.synchronize(next)) << "a deadlock that was resolved is over";
}

TEST(VirtualOrder, DestroyingAStreamThatNothingCanStartLosesTheDevice) {
  Rig rig(virtual_options(5));
  const NativeStream s = rig.gpu.create_stream("stuck");
  rig.device.wait_flag(s, rig.device.create_flag(), 1);
  rig.gpu.destroy_stream(s);
  EXPECT_TRUE(rig.device.lost());
  EXPECT_NE(rig.device.lost_reason().find("'stuck'"), std::string::npos);
}

}  // namespace
}  // namespace outboard::testing
