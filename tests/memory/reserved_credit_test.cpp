// SPDX-License-Identifier: Apache-2.0
#include "memory/reserved_credit.hpp"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "memory/huge_pages.hpp"
#include "memory/staging_pool.hpp"
#include "memory/state_store.hpp"
#include "topology/fixture_root.hpp"

namespace outboard::memory {
namespace {

using testing::FixtureRoot;

void reserve(const FixtureRoot& root, const std::string& folder, int pages) {
  root.write(folder + "/hugepages/hugepages-2048kB/free_hugepages", std::to_string(pages) + "\n");
}

/// Of the machine, and of each node.
void reserve(const FixtureRoot& root, const std::vector<int>& pages) {
  int all = 0;
  for (std::size_t node = 0; node < pages.size(); ++node) {
    reserve(root, "/sys/devices/system/node/node" + std::to_string(node), pages[node]);
    all += pages[node];
  }
  reserve(root, "/sys/kernel/mm", all);
}

topology::Machine real_nodes(const std::vector<std::uint32_t>& os_indices) {
  topology::Machine machine;
  for (const std::uint32_t index : os_indices) {
    machine.nodes.push_back({.os_index = index, .cores = {0}, .cpus = {0}});
  }
  return machine;
}

TEST(ReservedCredit, IsWholePagesOfTheArenasThatFitInOrder) {
  const FixtureRoot root;
  reserve(root, {10});
  const topology::Machine machine = real_nodes({0});
  ReservedCredit credit(machine, root.path());
  EXPECT_EQ(credit.take(0, kHugePage / 2), 0U) << "less than a page is small ones";
  EXPECT_EQ(credit.take(0, 4 * kHugePage + 1), 4 * kHugePage) << "the rest is in small ones";
  EXPECT_EQ(credit.take(0, 7 * kHugePage), 0U) << "6 are left: all or nothing";
  EXPECT_EQ(credit.take(0, 5 * kHugePage + 1), 5 * kHugePage);
  EXPECT_EQ(credit.take(0, kHugePage), kHugePage);
  EXPECT_EQ(credit.take(0, kHugePage), 0U);
}

// Of pages that all lie on one node another node's arenas take none.
TEST(ReservedCredit, IsOfTheArenasOwnNode) {
  const FixtureRoot root;
  reserve(root, {0, 20});
  const topology::Machine machine = real_nodes({0, 1});
  ReservedCredit credit(machine, root.path());
  EXPECT_EQ(credit.take(0, 10 * kHugePage), 0U);
  EXPECT_EQ(credit.take(1, 10 * kHugePage), 10 * kHugePage);
}

TEST(ReservedCredit, OfAllNodesTogetherIsWhatTheMachineAndItsGroupsLeave) {
  const FixtureRoot root;
  reserve(root, {10, 10});
  root.write("/proc/self/cgroup", "0::/job\n");
  root.write("/sys/fs/cgroup/job/hugetlb.2MB.max", std::to_string(15 * kHugePage) + "\n");
  const topology::Machine machine = real_nodes({0, 1});
  ReservedCredit credit(machine, root.path());
  EXPECT_EQ(credit.take(0, 10 * kHugePage), 10 * kHugePage);
  EXPECT_EQ(credit.take(1, 6 * kHugePage), 0U);
  EXPECT_EQ(credit.take(1, 5 * kHugePage), 5 * kHugePage);
}

TEST(ReservedCredit, WhatMayGoToOthersIsNotCountedOn) {
  const FixtureRoot root;
  reserve(root, {10});
  const topology::Machine machine = real_nodes({0});
  ReservedCredit credit(machine, root.path());
  credit.leave(0, 3 * kHugePage + 1);
  EXPECT_EQ(credit.take(0, 7 * kHugePage), 0U);
  EXPECT_EQ(credit.take(0, 6 * kHugePage), 6 * kHugePage);
}

TEST(ReservedCredit, StagingMayTakeSomeOnEveryNodeAndForTheRingOnTheFirst) {
  const FixtureRoot root;
  reserve(root, {10, 10});
  const topology::Machine machine = real_nodes({0, 1});
  ReservedCredit credit(machine, root.path());
  const std::array<SlotSpec, 2> slots = {{{1, 2 * kHugePage}, {1, 2 * kHugePage}}};
  StagingPool::leave_reserved(credit, slots, 7 * kHugePage, 0);
  EXPECT_EQ(credit.take(0, 8 * kHugePage), 0U);
  EXPECT_EQ(credit.take(0, 7 * kHugePage), 7 * kHugePage);
  EXPECT_EQ(credit.take(1, 7 * kHugePage), 0U);
  EXPECT_EQ(credit.take(1, 6 * kHugePage), 6 * kHugePage);
}

TEST(ReservedCredit, TheRingMayTakeSomeBesideTheDevice) {
  const FixtureRoot root;
  reserve(root, {10, 10});
  const topology::Machine machine = real_nodes({0, 1});
  ReservedCredit credit(machine, root.path());
  const std::array<SlotSpec, 1> slots = {{{0, 2 * kHugePage}}};
  StagingPool::leave_reserved(credit, slots, 5 * kHugePage, 1);
  EXPECT_EQ(credit.take(0, 8 * kHugePage), 8 * kHugePage);
  EXPECT_EQ(credit.take(1, 8 * kHugePage), 0U);
  EXPECT_EQ(credit.take(1, 7 * kHugePage), 7 * kHugePage);
}

// The machine's other nodes are forbidden, not absent: their pages are not this node's.
TEST(ReservedCredit, TheOnlyNodeWeMayUseHasItsOwnPages) {
  const FixtureRoot root;
  reserve(root, {20, 2});
  topology::Machine machine = real_nodes({1});
  EXPECT_EQ(reserved_for(machine, 0, root.path()), 2 * kHugePage);
  machine.numa_known = false;
  EXPECT_EQ(reserved_for(machine, 0, root.path()), 22 * kHugePage);
}

TEST(ReservedCredit, AMadeUpMachineGetsNone) {
  const FixtureRoot root;
  reserve(root, {20});
  const topology::Machine machine = topology::synthetic("core:1 pu:1");
  EXPECT_EQ(reserved_for(machine, 0, root.path()), 0U);
  ReservedCredit credit(machine, root.path());
  EXPECT_EQ(credit.take(0, kHugePage), 0U);
}

TEST(ReservedCredit, OfAStoreIsThatOfItsArenas) {
  const FixtureRoot root;
  reserve(root, {7, 100});
  const topology::Machine machine = real_nodes({0, 1});
  const std::array<StreamSpec, 2> streams = {{{"master", 4}, {"momentum", 4}}};
  const std::array<std::uint64_t, 2> elems = {4 * kHugePage / 4, 0};
  ReservedCredit credit(machine, root.path());
  StateHomes homes(machine, root.path());
  // The second stream begins a little behind the first: 4 pages and some more of 3.
  EXPECT_EQ(StateStore::reserved_bytes(homes, credit, streams, elems), 4 * kHugePage);
  const std::array<std::uint64_t, 2> beside = {0, kHugePage / 4};
  EXPECT_EQ(StateStore::reserved_bytes(homes, credit, streams, beside), 2 * kHugePage);
}

}  // namespace
}  // namespace outboard::memory
