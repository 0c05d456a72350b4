// SPDX-License-Identifier: Apache-2.0
#include "memory/pinned_region.hpp"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "memory/registering_backend.hpp"
#include "outboard/error.hpp"

namespace outboard::memory {
namespace {

using testing::RegisteringBackend;

NumaArena arena_of(std::size_t bytes) {
  return {topology::synthetic("core:2 pu:1"), 0, bytes, "test"};
}

TEST(PinnedRegion, RegistersAllOfTheArenaAndUnregistersItBeforeItIsUnmapped) {
  RegisteringBackend backend;
  {
    const PinnedRegion region(backend, arena_of(100'000));
    EXPECT_TRUE(region.pinned());
    ASSERT_EQ(backend.registered.size(), 1u);
    EXPECT_EQ(backend.registered[0].data(), region.bytes().data());
    EXPECT_EQ(backend.registered[0].size(), region.bytes().size());
  }
  EXPECT_TRUE(backend.registered.empty());
  EXPECT_EQ(backend.unmapped_too_early, 0);
}

TEST(PinnedRegion, RefusalLeavesUsablePageableMemory) {
  RegisteringBackend backend;
  backend.call_limit_bytes = 4096;
  {
    const PinnedRegion region(backend, arena_of(100'000));
    EXPECT_FALSE(region.pinned());
    ASSERT_GE(region.bytes().size(), 100'000u);
    region.bytes()[99'999] = std::byte{1};
  }
  EXPECT_EQ(backend.unregister_calls, 0);
}

TEST(PinnedRegion, FailureOfTheDeviceReachesTheCaller) {
  RegisteringBackend backend;
  backend.broken = true;
  try {
    const PinnedRegion region(backend, arena_of(5000));
    ADD_FAILURE() << "registered with a broken device";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::device_failure);
  }
  EXPECT_EQ(backend.unregister_calls, 0);
}

TEST(PinnedRegion, MoveKeepsTheRegistration) {
  RegisteringBackend backend;
  {
    PinnedRegion first(backend, arena_of(8192));
    const auto memory = first.bytes();
    PinnedRegion second(std::move(first));
    EXPECT_EQ(second.bytes().data(), memory.data());
    EXPECT_TRUE(second.pinned());
    EXPECT_EQ(backend.unregister_calls, 0);

    PinnedRegion third(backend, arena_of(4096));
    third = std::move(second);
    EXPECT_EQ(backend.unregister_calls, 1);
    EXPECT_EQ(third.bytes().data(), memory.data());
    EXPECT_EQ(backend.registered.size(), 1u);
  }
  EXPECT_EQ(backend.unregister_calls, 2);
  EXPECT_TRUE(backend.registered.empty());
  EXPECT_EQ(backend.unmapped_too_early, 0);
}

TEST(PinnedRegion, EmptyRegionAsksNothingOfTheDevice) {
  RegisteringBackend backend;
  backend.broken = true;
  {
    const PinnedRegion region(backend, NumaArena());
    EXPECT_TRUE(region.bytes().empty());
    const PinnedRegion none;
    EXPECT_FALSE(none.pinned());
  }
  EXPECT_EQ(backend.unregister_calls, 0);
}

}  // namespace
}  // namespace outboard::memory
