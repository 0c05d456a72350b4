// SPDX-License-Identifier: Apache-2.0
#include "memory/state_store.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

namespace outboard::memory {
namespace {

using core::kMaxStateStreams;
using core::kStreamStagger;

constexpr std::uint64_t kLine = 64;
constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kLarge = (std::uint64_t{2} << 20) / sizeof(float);  // huge pages from here

const std::array<StreamSpec, kMaxStateStreams> kStreams = {
    {{"master weight", 4}, {"exp_avg", 4}, {"exp_avg_sq", 4}, {"average", 4}}};
const std::array<StreamSpec, 1> kSums = {{{"sums", 4}}};

std::uintptr_t address(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer);
}

/// Bytes between two addresses if their pages were one.
std::uintptr_t distance_in_page(std::uintptr_t a, std::uintptr_t b) {
  const std::uintptr_t forth = (a - b) % kPage;
  return std::min(forth, kPage - forth);
}

class StateStoreSizes : public ::testing::TestWithParam<std::uint64_t> {
 protected:
  topology::Machine machine = topology::synthetic("numa:2 core:2 pu:1");
  std::array<std::uint64_t, 2> node_elems = {GetParam(), GetParam() + 48};
  StateHomes homes{machine};
  StateStore state{homes, kStreams, node_elems};
  StateStore sums{homes, kSums, node_elems, kMaxStateStreams};
};
INSTANTIATE_TEST_SUITE_P(Elements, StateStoreSizes,
                         ::testing::Values(16, 1024, kLarge, kLarge + 16));

TEST_P(StateStoreSizes, StreamsOfOneElementAreLinesApartWithinAPage) {
  for (std::uint32_t node = 0; node < 2; ++node) {
    const StateLease lease = state.lease({node, 0, 16});
    const StateLease sum = sums.lease({node, 0, 16});
    std::vector<std::uintptr_t> starts = {address(sum.stream<float>(0).data())};
    for (std::size_t i = 0; i < kMaxStateStreams; ++i) {
      starts.push_back(address(lease.stream<float>(i).data()));
    }
    for (std::size_t a = 0; a < starts.size(); ++a) {
      EXPECT_EQ(starts[a] % kLine, 0U);
      for (std::size_t b = 0; b < a; ++b) {
        EXPECT_GE(distance_in_page(starts[a], starts[b]), 4 * kLine) << a << " and " << b;
      }
    }
  }
}

TEST_P(StateStoreSizes, LeasesCoverWhatTheyAskForAndShareNoByte) {
  const std::uint64_t cut = 16;
  std::vector<std::pair<std::uintptr_t, std::uintptr_t>> ranges;
  for (std::uint32_t node = 0; node < 2; ++node) {
    for (const StatePlace& place :
         {StatePlace{node, 0, cut}, StatePlace{node, cut, node_elems[node] - cut}}) {
      const StateLease lease = state.lease(place);
      for (std::size_t i = 0; i < kMaxStateStreams; ++i) {
        const auto stream = lease.stream<std::byte>(i);
        ASSERT_EQ(stream.size(), place.elems * sizeof(float));
        if (stream.empty()) continue;
        std::memset(stream.data(), 1, stream.size());
        ranges.emplace_back(address(stream.data()), address(stream.data()) + stream.size());
      }
    }
  }
  std::sort(ranges.begin(), ranges.end());
  for (std::size_t i = 1; i < ranges.size(); ++i) {
    EXPECT_LE(ranges[i - 1].second, ranges[i].first);
  }
}

TEST_P(StateStoreSizes, EveryStreamLiesInTheArenaThatTheLedgerCounts) {
  const auto arenas = state.arenas();
  ASSERT_EQ(arenas.size(), 2 * kMaxStateStreams);
  for (std::uint32_t node = 0; node < 2; ++node) {
    const StateLease lease = state.lease({node, 0, node_elems[node]});
    for (std::size_t i = 0; i < kMaxStateStreams; ++i) {
      const auto stream = lease.stream<std::byte>(i);
      const auto& info = arenas[node * kMaxStateStreams + i];
      EXPECT_EQ(info.purpose, kStreams[i].purpose);
      EXPECT_EQ(info.arena.node(), node);
      const std::uintptr_t first = address(info.arena.bytes().data());
      const std::uintptr_t last = first + info.arena.bytes().size();
      EXPECT_GE(address(stream.data()), first);
      EXPECT_LE(address(stream.data()) + stream.size(), last);
      EXPECT_EQ(address(stream.data()) - first, i * kStreamStagger);
      EXPECT_LT(last - address(stream.data()) - stream.size(), kPage);
    }
  }
}

bool all_resident(std::span<std::byte> memory) {
  std::vector<unsigned char> pages((memory.size() + kPage - 1) / kPage);
  if (mincore(memory.data(), memory.size(), pages.data()) != 0) return false;
  return std::all_of(pages.begin(), pages.end(), [](unsigned char page) { return page & 1U; });
}

TEST_P(StateStoreSizes, WhoeverTouchesAllElementsHasTouchedTheArena) {
  for (const StateStore* store : {&state, &sums}) {
    const std::size_t streams = store->arenas().size() / 2;
    for (std::uint32_t node = 0; node < 2; ++node) {
      const StateLease lease = store->lease({node, 0, node_elems[node]});
      for (std::size_t i = 0; i < streams; ++i) {
        const auto stream = lease.stream<std::byte>(i);
        std::memset(stream.data(), 1, stream.size());
        EXPECT_TRUE(all_resident(store->arenas()[node * streams + i].arena.bytes())) << i;
      }
    }
  }
}

TEST(StateStore, ANodeWithoutElementsTakesNothingAndLeasesNothing) {
  const std::array<std::uint64_t, 2> node_elems = {0, 64};
  const topology::Machine machine = topology::synthetic("numa:2 core:2 pu:1");
  StateHomes homes(machine);
  const StateStore store(homes, kStreams, node_elems);
  const StateLease lease = store.lease({0, 0, 0});
  for (std::size_t i = 0; i < kMaxStateStreams; ++i) {
    EXPECT_TRUE(lease.stream<float>(i).empty());
    EXPECT_TRUE(store.arenas()[i].arena.bytes().empty());
    EXPECT_FALSE(store.arenas()[kMaxStateStreams + i].arena.bytes().empty());
  }
}

}  // namespace
}  // namespace outboard::memory
