// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "topology/machine.hpp"

namespace outboard::topology {
namespace {

using Threads = std::vector<std::uint32_t>;

Machine machine_of(const char* description, std::uint32_t quota_cores = 0) {
  Machine machine = synthetic(description);
  machine.quota_cores = quota_cores;
  return machine;
}

TEST(ChooseThreads, OneForEachPhysicalCore) {
  const ThreadChoice choice = choose_threads(machine_of("numa:2 core:4 pu:2"), 0, 0);
  EXPECT_EQ(choice.threads_per_node, (Threads{4, 4}));
  EXPECT_EQ(choice.why, "4+4 threads: 8 allowed physical cores");
}

TEST(ChooseThreads, ExplicitCountWinsOverEverything) {
  const ThreadChoice choice = choose_threads(machine_of("numa:2 core:4 pu:1", 2), 7, 3);
  EXPECT_EQ(choice.threads_per_node, (Threads{7, 7}));
  EXPECT_EQ(choice.why, "7+7 threads: as configured");
}

TEST(ChooseThreads, ReserveComesFromTheLastNodeAndLeavesOne) {
  EXPECT_EQ(choose_threads(machine_of("numa:2 core:4 pu:1"), 0, 1).threads_per_node,
            (Threads{4, 3}));
  const ThreadChoice choice = choose_threads(machine_of("numa:2 core:4 pu:1"), 0, 9);
  EXPECT_EQ(choice.threads_per_node, (Threads{4, 1}));
  EXPECT_NE(choice.why.find("3 left to the trainer"), std::string::npos) << choice.why;
}

TEST(ChooseThreads, QuotaLimitsAndKeepsNodesEven) {
  const ThreadChoice choice = choose_threads(machine_of("numa:2 core:6 pu:1", 7), 0, 0);
  EXPECT_EQ(choice.threads_per_node, (Threads{4, 3}));
  EXPECT_EQ(choice.why, "4+3 threads: 12 allowed physical cores, CPU quota 7");
  EXPECT_EQ(choose_threads(machine_of("core:12 pu:1", 4), 0, 1).threads_per_node, (Threads{4}));
  EXPECT_EQ(choose_threads(machine_of("core:12 pu:1", 12), 0, 0).threads_per_node, (Threads{12}));
}

TEST(ChooseThreads, EveryNodeKeepsOneThreadBelowTheQuota) {
  EXPECT_EQ(choose_threads(machine_of("numa:4 core:2 pu:1", 1), 0, 0).threads_per_node,
            (Threads{1, 1, 1, 1}));
  EXPECT_EQ(choose_threads(machine_of("core:1 pu:1"), 0, 5).why,
            "1 thread: 1 allowed physical cores");
}

}  // namespace
}  // namespace outboard::topology
