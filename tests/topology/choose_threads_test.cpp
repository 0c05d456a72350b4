// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "support/expect_error.hpp"

#include "topology/cgroup_quota.hpp"
#include "topology/fixture_root.hpp"
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

TEST(ChooseThreads, ReserveComesFromTheLastNodesAndLeavesOneEach) {
  EXPECT_EQ(choose_threads(machine_of("numa:2 core:4 pu:1"), 0, 1).threads_per_node,
            (Threads{4, 3}));
  EXPECT_EQ(choose_threads(machine_of("numa:3 core:4 pu:1"), 0, 5).threads_per_node,
            (Threads{4, 2, 1}));
  const ThreadChoice choice = choose_threads(machine_of("numa:2 core:4 pu:1"), 0, 9);
  EXPECT_EQ(choice.threads_per_node, (Threads{1, 1}));
  EXPECT_NE(choice.why.find("6 left to the trainer"), std::string::npos) << choice.why;
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

TEST(ChooseThreads, AQuotaOfFewerCoresThanNodesMakesThemOne) {
  Machine described = machine_of("numa:4 core:2 pu:2", 1);
  described.memory_nodes = {{.os_index = 4, .memory_bytes = 64, .nearest = 3}};
  const Machine machine = within_quota(described);
  ASSERT_EQ(machine.nodes.size(), 1U);
  EXPECT_EQ(machine.nodes[0].cores, (std::vector<std::uint32_t>{0, 2, 4, 6, 8, 10, 12, 14}));
  EXPECT_EQ(machine.nodes[0].cpus.size(), 16U);
  EXPECT_FALSE(machine.numa_known);
  EXPECT_TRUE(machine.memory_nodes.empty()) << "nothing can be bound to one";
  EXPECT_EQ(machine.nodes[0].memory_bytes, 4 * described.nodes[0].memory_bytes + 64);
  EXPECT_NE(machine.notes.find("a CPU quota of 1 for 4 nodes"), std::string::npos);
  EXPECT_EQ(choose_threads(machine, 0, 0).threads_per_node, (Threads{1}));
  EXPECT_EQ(within_quota(machine_of("numa:4 core:2 pu:1", 4)).nodes.size(), 4U);
  EXPECT_EQ(within_quota(machine_of("numa:4 core:2 pu:1", 0)).nodes.size(), 4U);
}

/// Quotas as control groups write them, on a machine of twelve cores.
TEST(ChooseThreads, StateTheQuotaWithItsSource) {
  struct Case {
    const char* cpu_max;
    std::uint32_t threads;
  };
  for (const Case& c : {Case{"400000 100000", 4}, Case{"765000 100000", 7}, Case{"50000 100000", 1},
                        Case{"max 100000", 12}}) {
    testing::FixtureRoot root;
    root.write("/proc/self/cgroup", "0::/slice/job\n");
    root.write("/sys/fs/cgroup/slice/cpu.max", std::string(c.cpu_max) + "\n");
    const CpuQuota quota = read_quota(root.path());
    Machine machine = machine_of("core:12 pu:1", quota.cores);
    machine.quota_source = quota.source;
    const ThreadChoice choice = choose_threads(machine, 0, 0);
    EXPECT_EQ(choice.threads_per_node, (Threads{c.threads})) << c.cpu_max;
    const bool limited = c.threads < 12;
    EXPECT_EQ(choice.why.find("slice/cpu.max = " + std::string(c.cpu_max)) != std::string::npos,
              limited)
        << choice.why;
  }
}

TEST(ChooseThreads, MoreThanASystemGivesAreRefusedWithTheLimit) {
  EXPECT_EQ(choose_threads(machine_of("numa:2 core:1 pu:1"), 2048, 0).threads_per_node,
            (Threads{2048, 2048}));
  struct Case {
    const char* machine;
    std::uint32_t threads;
    const char* all;
  };
  for (const Case& c :
       {Case{"numa:2 core:1 pu:1", 2049, "4098"}, Case{"core:1 pu:1", 100000, "100000"},
        Case{"numa:4 core:1 pu:1", 0x80000000u, "8589934592"}}) {
    SCOPED_TRACE(c.all);
    testing::expect_error(ErrorCode::invalid_config,
                          {"threads_per_node is " + std::to_string(c.threads),
                           std::string(c.all) + " threads", "at most 4096"},
                          [&] { (void)choose_threads(machine_of(c.machine), c.threads, 0); });
  }
}

TEST(ChooseThreads, ALargerMachineGetsNoMoreThanTheLimit) {
  Machine machine = machine_of("numa:2 core:1 pu:1");
  for (Node& node : machine.nodes) node.cores.assign(3000, 0);
  const ThreadChoice choice = choose_threads(machine, 0, 0);
  EXPECT_EQ(choice.threads_per_node, (Threads{2048, 2048}));
  EXPECT_NE(choice.why.find("6000 allowed physical cores, at most 4096"), std::string::npos)
      << choice.why;
}

}  // namespace
}  // namespace outboard::topology
