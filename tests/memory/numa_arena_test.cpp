// SPDX-License-Identifier: Apache-2.0
#include "memory/numa_arena.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

#include "outboard/error.hpp"

namespace outboard::memory {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

std::size_t page_bytes() {
  return static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

/// Resident bytes of all mappings that lie inside `memory`, as /proc/self/smaps counts them;
/// nothing if no mapping starts there.
std::optional<std::size_t> resident_bytes(std::span<std::byte> memory) {
  std::ifstream smaps("/proc/self/smaps");
  std::optional<std::size_t> resident;
  const auto first = reinterpret_cast<std::uintptr_t>(memory.data());
  bool inside = false;
  for (std::string line; std::getline(smaps, line);) {
    std::istringstream words(line);
    std::uintptr_t start = 0;
    std::uintptr_t end = 0;
    char dash = 0;
    std::string name;
    std::size_t kib = 0;
    if (words >> std::hex >> start >> dash >> end && dash == '-') {
      inside = start >= first && end <= first + memory.size();
      if (inside && !resident) resident = 0;
    } else if (std::istringstream(line) >> name >> kib && inside && name == "Rss:") {
      *resident += kib * 1024;
    }
  }
  return resident;
}

bool mapped(const std::byte* address) {
  unsigned char state = 0;
  void* page = const_cast<std::byte*>(address);
  return mincore(page, page_bytes(), &state) == 0;
}

topology::Machine machine() {
  return topology::discover();
}

TEST(NumaArena, RoundsUpToPagesAndAlignsLargeOnesToHugePages) {
  EXPECT_EQ(NumaArena(machine(), 0, 1, "test").bytes().size(), page_bytes());
  EXPECT_EQ(NumaArena(machine(), 0, page_bytes() + 1, "test").bytes().size(), 2 * page_bytes());
  EXPECT_EQ(NumaArena(machine(), 0, kHugePage, "test").bytes().size(), kHugePage);
  const NumaArena large(machine(), 0, kHugePage + 1, "test");
  EXPECT_EQ(large.bytes().size(), kHugePage + page_bytes());
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(large.bytes().data()) % kHugePage, 0u);
}

TEST(NumaArena, NothingForNoBytes) {
  const NumaArena arena(machine(), 0, 0, "test");
  EXPECT_TRUE(arena.bytes().empty());
  EXPECT_EQ(arena.binding_note(), "");
}

TEST(NumaArena, IsResidentOnlyOnceTouchedAndThenToTheByte) {
  const NumaArena arena(machine(), 0, 3 * kHugePage, "test");
  // A flag of its own keeps the kernel from merging the mapping with its neighbours.
  ASSERT_EQ(madvise(arena.bytes().data(), arena.bytes().size(), MADV_DONTDUMP), 0);
  ASSERT_EQ(resident_bytes(arena.bytes()), 0u);
  std::memset(arena.bytes().data(), 1, arena.bytes().size());
  EXPECT_EQ(resident_bytes(arena.bytes()), 3 * kHugePage);
}

TEST(NumaArena, IsZeroBeforeAnybodyWrites) {
  const NumaArena arena(machine(), 0, 3 * page_bytes(), "test");
  for (const std::byte byte : arena.bytes()) ASSERT_EQ(byte, std::byte{0});
}

TEST(NumaArena, MoveHandsTheMappingOver) {
  NumaArena first(machine(), 0, kHugePage, "test");
  std::byte* const address = first.bytes().data();
  address[5] = std::byte{9};
  NumaArena second(std::move(first));
  EXPECT_TRUE(first.bytes().empty());  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(second.bytes().data(), address);

  NumaArena third(machine(), 0, page_bytes(), "test");
  std::byte* const replaced = third.bytes().data();
  third = std::move(second);
  EXPECT_FALSE(mapped(replaced));
  EXPECT_EQ(third.bytes().data()[5], std::byte{9});
  third = NumaArena();
  EXPECT_FALSE(mapped(address));
}

TEST(NumaArena, EndUnmapsAllOfIt) {
  std::byte* first = nullptr;
  std::byte* last = nullptr;
  {
    const NumaArena arena(machine(), 0, 2 * kHugePage, "test");
    first = arena.bytes().data();
    last = first + arena.bytes().size() - page_bytes();
    EXPECT_TRUE(mapped(first));
    EXPECT_TRUE(mapped(last));
  }
  EXPECT_FALSE(mapped(first));
  EXPECT_FALSE(mapped(last));
}

TEST(NumaArena, NodesOfAMadeUpMachineGetMemoryWithoutBinding) {
  const topology::Machine two = topology::synthetic("numa:2 core:2 pu:1");
  for (std::uint32_t node = 0; node < 2; ++node) {
    const NumaArena arena(two, node, page_bytes(), "test");
    EXPECT_EQ(arena.node(), node);
    EXPECT_EQ(arena.binding_note(), "");
    arena.bytes()[0] = std::byte{1};
  }
}

TEST(NumaArena, TooMuchIsAnErrorThatSaysWhatForAndHowMuch) {
  for (const std::size_t bytes :
       {std::size_t{1} << 60, std::numeric_limits<std::size_t>::max() - 5}) {
    try {
      const NumaArena arena(machine(), 0, bytes, "FP32 master weights");
      ADD_FAILURE() << "mapped " << bytes;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
      EXPECT_NE(std::string(error.what()).find("FP32 master weights"), std::string::npos);
      EXPECT_NE(std::string(error.what()).find(std::to_string(bytes)), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace outboard::memory
