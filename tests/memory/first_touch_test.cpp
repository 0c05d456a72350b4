// SPDX-License-Identifier: Apache-2.0
// Who brings pages in, how often, and that they are there before the device is asked to pin them.
#include "memory/first_touch.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "memory/numa_arena.hpp"
#include "memory/registering_backend.hpp"
#include "memory/staging_pool.hpp"

namespace outboard::memory {
namespace {

constexpr std::size_t kPage = 4096;

bool resident(std::span<const std::byte> memory) {
  std::vector<unsigned char> pages((memory.size() + kPage - 1) / kPage);
  void* const first = const_cast<std::byte*>(memory.data());
  if (mincore(first, memory.size(), pages.data()) != 0) return false;
  return std::ranges::all_of(pages, [](unsigned char page) { return (page & 1U) != 0; });
}

TEST(FirstTouch, BringsInEveryPageAndLeavesZeros) {
  for (const std::size_t bytes : {std::size_t{1}, 3 * kPage, (std::size_t{4} << 20) + kPage}) {
    const NumaArena arena(topology::synthetic("core:1 pu:1"), 0, bytes, "test");
    ASSERT_FALSE(resident(arena.bytes()));
    EXPECT_EQ(bring_in(arena.bytes()), 0);
    EXPECT_TRUE(resident(arena.bytes()));
    EXPECT_TRUE(std::ranges::all_of(arena.bytes(), [](std::byte b) { return b == std::byte{0}; }));
  }
  EXPECT_EQ(bring_in({}), 0);
}

/// Remembers what it was asked to touch.
struct Touches {
  std::vector<FreshMemory> seen;
  bool operator()(std::span<const FreshMemory> fresh) {
    seen.insert(seen.end(), fresh.begin(), fresh.end());
    return touch_here(fresh);
  }
  /// Whether the range was asked for once, as a whole, for that node.
  [[nodiscard]] bool once(std::uint32_t node, std::span<const std::byte> range) const {
    return 1 == std::ranges::count_if(seen, [&](const FreshMemory& one) {
             return one.node == node && one.bytes.data() == range.data() &&
                    one.bytes.size() == range.size();
           });
  }
};

std::vector<SlotSpec> slots_on_two_nodes() {
  std::vector<SlotSpec> specs;
  for (std::uint32_t i = 0; i < 12; ++i) specs.push_back({i % 2, (1 + i % 3) * kPage});
  return specs;
}

TEST(FirstTouch, StagingIsTouchedOnceOnItsNodesAndThenPinned) {
  testing::RegisteringBackend backend;
  Touches touches;
  const auto specs = slots_on_two_nodes();
  const StagingPool pool(backend, topology::synthetic("numa:2 core:1 pu:1"), specs, {}, touches);
  EXPECT_EQ(pool.direct_slots(), specs.size());
  ASSERT_EQ(touches.seen.size(), 2U);
  for (const StagingPool::RegionInfo& region : pool.regions()) {
    EXPECT_TRUE(touches.once(region.node, region.bytes));
    EXPECT_TRUE(resident(region.bytes));
  }
  EXPECT_EQ(backend.pageable_registrations, 0) << "pinned before it was there";
}

TEST(FirstTouch, PageableStagingIsTouchedOnItsNodesToo) {
  testing::RegisteringBackend backend;
  backend.total_limit_bytes = 0;
  Touches touches;
  const auto specs = slots_on_two_nodes();
  const StagingPool pool(backend, topology::synthetic("numa:2 core:1 pu:1"), specs, {}, touches);
  EXPECT_TRUE(pool.refused());
  EXPECT_EQ(pool.direct_slots(), 0U);
  std::size_t staging = 0;
  for (const StagingPool::RegionInfo& region : pool.regions()) {
    if (std::string(region.purpose) == "bounce ring") continue;
    staging += 1;
    EXPECT_TRUE(touches.once(region.node, region.bytes));
  }
  EXPECT_EQ(staging, 2U);
}

}  // namespace
}  // namespace outboard::memory
