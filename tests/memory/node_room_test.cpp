// SPDX-License-Identifier: Apache-2.0
#include "memory/node_room.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "topology/fixture_root.hpp"

namespace outboard::memory {
namespace {

using Room = std::vector<std::uint64_t>;

topology::Machine real_nodes(std::vector<std::uint32_t> os_indices) {
  topology::Machine machine;
  for (const std::uint32_t index : os_indices) {
    machine.nodes.push_back({.os_index = index, .cores = {0}, .cpus = {0}});
  }
  return machine;
}

TEST(NodeRoom, IsWhatIsFreeAndWhatTheKernelGivesUpLessATenth) {
  testing::FixtureRoot root;
  root.write("/sys/devices/system/node/node0/meminfo",
             "Node 0 MemTotal:       1000000 kB\nNode 0 MemFree:         100000 kB\n"
             "Node 0 Active(anon):     50000 kB\nNode 0 Active(file):     30000 kB\n"
             "Node 0 Inactive(file):   20000 kB\n");
  root.write("/sys/devices/system/node/node3/meminfo",
             "Node 3 MemTotal:       1000000 kB\nNode 3 MemFree:          10000 kB\n");
  EXPECT_EQ(read_node_room(real_nodes({0, 3}), root.path()),
            (Room{150'000ULL * 1024 / 10 * 9, 10'000ULL * 1024 / 10 * 9}));
}

TEST(NodeRoom, IsUnknownWhereTheSystemDoesNotSay) {
  testing::FixtureRoot root;
  root.write("/sys/devices/system/node/node0/meminfo", "fish\nNode 0 MemTotal: 5 kB\n");
  EXPECT_EQ(read_node_room(real_nodes({0, 1}), root.path()), (Room{kUnknownRoom, kUnknownRoom}));
}

TEST(NodeRoom, WhatTheKernelKeepsOnANodeIsNotFree) {
  testing::FixtureRoot root;
  for (const char* node : {"0", "1"}) {
    const std::string folder = std::string("/sys/devices/system/node/node") + node;
    root.write(folder + "/meminfo", std::string("Node ") + node + " MemFree: 102400 kB\n");
  }
  root.write("/proc/zoneinfo",
             "Node 0, zone DMA\n  per-node stats\n      nr_high 7\n  pages free 9\n"
             "        min      1\n        low      2\n        high     100\n"
             "Node 0, zone Normal\n        high     156\n"
             "Node 1, zone Normal\n        high     999999\n");
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  EXPECT_EQ(free_bytes_of(root.path(), 0), (102'400ULL * 1024 - 256 * page) / 10 * 9);
  EXPECT_EQ(free_bytes_of(root.path(), 1), 0U);
}

TEST(NodeRoom, IsThatOfReservedHugePagesIfThoseAreMore) {
  testing::FixtureRoot root;
  const std::string pages = "/hugepages/hugepages-2048kB/";
  root.write("/sys/kernel/mm" + pages + "free_hugepages", "7\n");
  root.write("/sys/kernel/mm" + pages + "resv_hugepages", "0\n");
  root.write("/sys/devices/system/node/node0/meminfo", "Node 0 MemFree: 1000 kB\n");
  root.write("/sys/devices/system/node/node0" + pages + "free_hugepages", "5\n");
  EXPECT_EQ(free_bytes_of(root.path(), 0), 5 * (std::uint64_t{2} << 20));
  root.write("/sys/devices/system/node/node0/meminfo", "Node 0 MemFree: 20000 kB\n");
  EXPECT_EQ(free_bytes_of(root.path(), 0), 20'000ULL * 1024 / 10 * 9);
}

TEST(NodeRoom, IsThatOfMemoryBesideTheNodeToo) {
  testing::FixtureRoot root;
  for (const char* node : {"0", "1", "2"}) {
    const std::string folder = std::string("/sys/devices/system/node/node") + node;
    root.write(folder + "/meminfo", std::string("Node ") + node + " MemFree: 1000 kB\n");
  }
  topology::Machine machine = real_nodes({0, 2});
  machine.memory_nodes = {{.os_index = 1, .nearest = 1}};
  const std::uint64_t each = 1000ULL * 1024 / 10 * 9;
  EXPECT_EQ(read_node_room(machine, root.path()), (Room{each, 2 * each}));
}

TEST(NodeRoom, OfAMadeUpNodeIsItsMemory) {
  topology::Machine machine = topology::synthetic("numa:2(memory=64MB) core:1 pu:1");
  EXPECT_EQ(read_node_room(machine, ""), (Room{64'000'000, 64'000'000}));
  machine.nodes[1].memory_bytes = 0;
  EXPECT_EQ(read_node_room(machine, "").back(), kUnknownRoom);
}

}  // namespace
}  // namespace outboard::memory
