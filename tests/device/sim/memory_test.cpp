// SPDX-License-Identifier: Apache-2.0
// Device memory as a trainer sees it.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <random>

#include "device/sim/device_memory.hpp"
#include "rig.hpp"

namespace outboard::testing {
namespace {

class SimMemory : public ::testing::TestWithParam<sim::Mode> {
 protected:
  static sim::Options options() {
    return GetParam() == sim::Mode::threads ? thread_options() : virtual_options();
  }
};

using SimMemoryDeathTest = SimMemory;

TEST_P(SimMemoryDeathTest, AHostReadOfADeviceAddressFaults) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Rig rig(options());
  auto* address = rig.allocate<char>(100);
  EXPECT_DEATH(
      {
        const volatile char* peek = address;
        std::fprintf(stderr, "read %d\n", *peek);
      },
      "");
}

TEST_P(SimMemoryDeathTest, AHostWriteToADeviceAddressFaults) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Rig rig(options());
  auto* address = rig.allocate<char>(100);
  EXPECT_DEATH(std::memset(address, 0, 100), "");
}

TEST_P(SimMemory, TheLimitRefusesAndSaysAskedUsedAndLimit) {
  Rig rig(options());
  void* first = rig.gpu.allocate(1000 * 1000);
  expect_error(ErrorCode::out_of_memory, {"50000 bytes asked", "1000192", "1048576"},
               [&] { (void)rig.gpu.allocate(50000); });
  expect_error(ErrorCode::out_of_memory, {std::to_string(SIZE_MAX)},
               [&] { (void)rig.gpu.allocate(SIZE_MAX); });
  rig.gpu.release(first);
  void* whole = rig.gpu.allocate(1 << 20);
  EXPECT_EQ(rig.gpu.memory().used_bytes, rig.gpu.memory().limit_bytes);
  EXPECT_THROW((void)rig.gpu.allocate(1), Error);
  rig.gpu.release(whole);
}

TEST_P(SimMemory, UseIsRoundedTo256AndThePeakStays) {
  Rig rig(options());
  void* a = rig.gpu.allocate(1);
  void* b = rig.gpu.allocate(257);
  void* c = rig.gpu.allocate(0);
  EXPECT_EQ(rig.gpu.memory().used_bytes, 256u + 512 + 256);
  rig.gpu.release(b);
  EXPECT_EQ(rig.gpu.memory().used_bytes, 512u);
  EXPECT_EQ(rig.gpu.memory().peak_bytes, 1024u);
  rig.gpu.release(a);
  rig.gpu.release(c);
  rig.gpu.release(nullptr);
  EXPECT_EQ(rig.gpu.memory().used_bytes, 0u);
  EXPECT_EQ(rig.gpu.memory().peak_bytes, 1024u);
  EXPECT_EQ(rig.gpu.counters().live_allocations, 0u);
}

TEST_P(SimMemory, OnlyTheStartOfALiveAllocationIsReleased) {
  Rig rig(options());
  auto* a = rig.allocate<char>(512);
  EXPECT_THROW(rig.gpu.release(a + 256), Error);
  int local = 0;
  EXPECT_THROW(rig.gpu.release(&local), Error);
  rig.gpu.release(a);
  expect_error(ErrorCode::invalid_argument, {"release"}, [&] { rig.gpu.release(a); });
}

// Random allocations and releases: nothing overlaps, and in the end it is one free range again.
TEST_P(SimMemory, ReleasedRangesAreUsedAgain) {
  Rig rig(options());
  std::mt19937 random(5);
  std::vector<std::pair<char*, std::size_t>> live;
  for (int i = 0; i < 3000; ++i) {
    if (live.size() < 20 && random() % 3 != 0) {
      const std::size_t bytes = 1 + random() % 30000;
      auto* start = static_cast<char*>(rig.gpu.allocate(bytes));
      for (const auto& [other, length] : live) {
        ASSERT_TRUE(start + bytes <= other || other + length <= start);
      }
      live.emplace_back(start, bytes);
    } else if (!live.empty()) {
      std::swap(live[random() % live.size()], live.back());
      rig.gpu.release(live.back().first);
      live.pop_back();
    }
  }
  for (const auto& [start, bytes] : live) rig.gpu.release(start);
  rig.gpu.release(rig.gpu.allocate(1 << 20));
}

TEST_P(SimMemory, AKernelSeesTheMemoryAndNothingElse) {
  Rig rig(options());
  const NativeStream s = rig.gpu.create_stream();
  auto* a = rig.allocate<float>(100);
  auto* gone = rig.allocate<float>(100);
  rig.gpu.release(gone);
  float local = 0.0f;
  std::vector<std::string> refused;
  rig.gpu.launch(s, 0ns, [&](sim::KernelView& view) {
    const auto values = view.as<float>(a, 100);
    std::iota(values.begin(), values.end(), 0.0f);
    EXPECT_NE(values.data(), a);
    EXPECT_EQ(view.as<double>(a + 2, 49).size(), 49u);
    const auto refuse = [&](const void* address, std::size_t count) {
      try {
        (void)view.as<float>(address, count);
        refused.emplace_back("");
      } catch (const Error& error) {
        refused.emplace_back(error.what());
      }
    };
    refuse(a, 101);
    refuse(a + 1, 100);
    refuse(gone, 1);
    refuse(&local, 1);
    refuse(nullptr, 1);
    refuse(reinterpret_cast<char*>(a) + 2, 1);
    refuse(a, SIZE_MAX / 2);
  });
  std::vector<float> host(100);
  rig.gpu.copy_to_host(bytes_of(host), a, s);
  rig.gpu.synchronize(s);
  EXPECT_EQ(host[99], 99.0f);
  ASSERT_EQ(refused.size(), 7u);
  EXPECT_NE(refused[0].find("past the end"), std::string::npos) << refused[0];
  EXPECT_NE(refused[1].find("past the end"), std::string::npos) << refused[1];
  EXPECT_NE(refused[2].find("released"), std::string::npos) << refused[2];
  EXPECT_NE(refused[3].find("not device memory"), std::string::npos) << refused[3];
  EXPECT_NE(refused[4].find("not device memory"), std::string::npos) << refused[4];
  EXPECT_NE(refused[5].find("aligned"), std::string::npos) << refused[5];
  EXPECT_NE(refused[6].find("more than memory"), std::string::npos) << refused[6];
}

TEST_P(SimMemory, PinnedMemoryHasItsOwnLimit) {
  sim::Options with_limit = options();
  with_limit.pinned_limit_bytes = 10000;
  Rig rig(with_limit);
  std::vector<std::byte> a(6000);
  std::vector<std::byte> b(6000);
  EXPECT_TRUE(rig.device.register_host(a));
  EXPECT_FALSE(rig.device.register_host(b));
  EXPECT_EQ(rig.gpu.counters().live_registrations, 1u);
  EXPECT_THROW((void)rig.device.register_host(std::span(a).first(10)), Error);
  rig.device.unregister_host(b);
  EXPECT_EQ(rig.gpu.counters().live_registrations, 1u);
  rig.device.unregister_host(a);
  EXPECT_TRUE(rig.device.register_host(b));
  rig.device.unregister_host(b);
  EXPECT_EQ(rig.gpu.counters().live_registrations, 0u);
}

INSTANTIATE_TEST_SUITE_P(BothModes, SimMemory,
                         ::testing::Values(sim::Mode::threads, sim::Mode::virtual_time));
INSTANTIATE_TEST_SUITE_P(BothModes, SimMemoryDeathTest,
                         ::testing::Values(sim::Mode::threads, sim::Mode::virtual_time));

TEST(SimMemoryUse, NewMemoryIsPoisonedInVirtualTime) {
  sim::DeviceMemory memory(4096, sim::DeviceMemory::Kind::poisoned);
  const auto* bytes = static_cast<const unsigned char*>(memory.alias(memory.allocate(300), 300));
  for (int i = 0; i < 300; ++i) ASSERT_EQ(bytes[i], 0xFF);
}

}  // namespace
}  // namespace outboard::testing
