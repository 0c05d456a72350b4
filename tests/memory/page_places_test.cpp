// SPDX-License-Identifier: Apache-2.0
#include "memory/page_places.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <vector>

#include "memory/numa_arena.hpp"

namespace outboard::memory {
namespace {

/// A range of small pages, none of them touched.
std::span<std::byte> map_pages(std::size_t pages) {
  const std::size_t bytes = pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  EXPECT_NE(address, MAP_FAILED);
  (void)madvise(address, bytes, MADV_NOHUGEPAGE);
  return {static_cast<std::byte*>(address), bytes};
}

TEST(PagePlaces, OnlyTouchedPagesAreSomewhere) {
  const std::span<std::byte> memory = map_pages(1000);
  EXPECT_EQ(sample_pages(memory, 0).known, 0U);
  const std::size_t half = memory.size() / 2;
  ASSERT_EQ(bring_in(memory.first(half)), 0);
  const PageSample sample = sample_pages(memory, 0);
  if (sample.known == 0) GTEST_SKIP() << "move_pages does not answer here";
  EXPECT_EQ(sample.known, 128U) << "half of 256";
  EXPECT_EQ(sample_pages(memory.first(3 * 4096), 0).known, 3U);
  // A page is on exactly one node: of all there may be it is elsewhere for all but one.
  std::size_t at_home = 0;
  for (std::uint32_t node = 0; node < 64; ++node) {
    const PageSample of = sample_pages(memory, node);
    at_home += of.known - of.elsewhere;
  }
  EXPECT_EQ(at_home, 128U);
  (void)munmap(memory.data(), memory.size());
}

TEST(PagePlaces, NoMemoryIsNowhere) {
  EXPECT_EQ(sample_pages({}, 0).known, 0U);
  NodePlaces places;
  places.add({});
  EXPECT_EQ(places.bytes, 0U);
}

TEST(PagePlaces, AddUpByBytes) {
  const std::span<std::byte> memory = map_pages(20);
  ASSERT_EQ(bring_in(memory), 0);
  constexpr std::uint32_t kNoNode = 4095;
  NodePlaces places{.os_node = kNoNode};
  places.add(memory);
  places.add(memory.first(memory.size() / 2));
  if (places.bytes == 0) GTEST_SKIP() << "move_pages does not answer here";
  EXPECT_EQ(places.bytes, memory.size() / 2 * 3);
  EXPECT_DOUBLE_EQ(places.elsewhere_bytes, static_cast<double>(places.bytes));
  (void)munmap(memory.data(), memory.size());
}

TEST(PagePlaces, StraysAreToldFromAHundredthOn) {
  const std::array<NodePlaces, 3> few = {{{0, 1000, 0.0}, {1, 1000, 9.0}, {2, 0, 0.0}}};
  EXPECT_EQ(describe_strays(few), "");
  const std::array<NodePlaces, 3> many = {{{0, 1000, 370.0}, {1, 1000, 9.0}, {2, 500, 500.0}}};
  const std::string text = describe_strays(many);
  for (const char* part :
       {"37 % of 1000 bytes for node 0, 100 % of 500 bytes for node 2 lie on other nodes",
        "drop_caches", "vm.zone_reclaim_mode=1"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
  }
}

}  // namespace
}  // namespace outboard::memory
