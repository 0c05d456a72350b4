// SPDX-License-Identifier: Apache-2.0
// Made-up machines with memory that has no cpus; what is free is read from files below a root.
#include "memory/state_homes.hpp"

#include <gtest/gtest.h>

#include "topology/fixture_root.hpp"

namespace outboard::memory {
namespace {

using testing::FixtureRoot;

constexpr std::size_t kMiB = std::size_t{1} << 20;

void write_meminfo(const FixtureRoot& root, std::uint32_t node, std::size_t free_kib) {
  root.write("/sys/devices/system/node/node" + std::to_string(node) + "/meminfo",
             "Node " + std::to_string(node) + " MemFree:  " + std::to_string(free_kib) + " kB\n");
}

/// Nodes 0 and 2 have cpus; 1 is nearest to 0, 3 and 4 to 2.
topology::Machine machine() {
  topology::Machine machine = topology::synthetic("numa:2 core:1 pu:1");
  machine.nodes[1].os_index = 2;
  machine.memory_nodes = {
      {.os_index = 1, .nearest = 0}, {.os_index = 3, .nearest = 1}, {.os_index = 4, .nearest = 1}};
  return machine;
}

TEST(StateHomes, MemoryBesideANodeTakesWhatTheNodeHasNoRoomFor) {
  FixtureRoot root;
  for (const std::uint32_t node : {0U, 1U, 2U, 3U, 4U}) write_meminfo(root, node, 100 << 10);
  const topology::Machine two = machine();
  StateHomes homes(two, root.path());
  EXPECT_FALSE(homes.place(0, 60 * kMiB).memory_node);
  const ArenaPlace beside = homes.place(0, 60 * kMiB);  // 30 are left of 90
  EXPECT_EQ(beside.node, 0U);
  EXPECT_EQ(beside.memory_node, 0U);
  EXPECT_EQ(os_node_of(two, beside), 1U);
  EXPECT_FALSE(homes.place(0, 29 * kMiB).memory_node) << "a smaller arena still fits";
  EXPECT_FALSE(homes.place(0, 60 * kMiB).memory_node) << "nobody has room: the kernel decides";
  // The other node's are its own: the first that has room.
  homes.keep(1, 80 * kMiB);
  EXPECT_EQ(homes.place(1, 50 * kMiB).memory_node, 1U);
  const ArenaPlace next = homes.place(1, 50 * kMiB);
  EXPECT_EQ(next.memory_node, 2U);
  EXPECT_EQ(os_node_of(two, next), 4U);
  EXPECT_EQ(os_node_of(two, homes.place(1, kMiB)), 2U);
}

TEST(StateHomes, WithoutMemoryNodesNothingIsAskedAndAllStays) {
  const topology::Machine plain = topology::synthetic("numa:2 core:1 pu:1");
  StateHomes homes(plain, "/nowhere");
  homes.keep(1, SIZE_MAX);
  const ArenaPlace place = homes.place(1, SIZE_MAX);
  EXPECT_EQ(place.node, 1U);
  EXPECT_FALSE(place.memory_node);
}

}  // namespace
}  // namespace outboard::memory
