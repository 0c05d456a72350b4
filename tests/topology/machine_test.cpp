// SPDX-License-Identifier: Apache-2.0
#include "topology/machine.hpp"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <set>
#include <thread>

#include "outboard/error.hpp"
#include "support/expect_error.hpp"

namespace outboard::topology {
namespace {

using Cpus = std::vector<std::uint32_t>;

TEST(SyntheticMachine, TwoNodesWithTheirCores) {
  const Machine machine = synthetic("numa:2 core:2 pu:1");
  ASSERT_EQ(machine.nodes.size(), 2u);
  EXPECT_EQ(machine.nodes[0].cores, (Cpus{0, 1}));
  EXPECT_EQ(machine.nodes[1].cores, (Cpus{2, 3}));
  EXPECT_EQ(machine.nodes[1].os_index, 1u);
  EXPECT_FALSE(machine.real);
  EXPECT_EQ(machine.quota_cores, 0u);
}

TEST(SyntheticMachine, HyperThreadsAreCpusButNotCores) {
  const Machine machine = synthetic("numa:2 core:8 pu:2");
  ASSERT_EQ(machine.nodes.size(), 2u);
  for (const Node& node : machine.nodes) {
    EXPECT_EQ(node.cores.size(), 8u);
    EXPECT_EQ(node.cpus.size(), 16u);
  }
  EXPECT_EQ(machine.nodes[0].cores, (Cpus{0, 2, 4, 6, 8, 10, 12, 14}));
}

TEST(SyntheticMachine, MemoryIsRead) {
  const Machine machine = synthetic("pack:2 numa:1(memory=4GiB) core:1 pu:1");
  ASSERT_EQ(machine.nodes.size(), 2u);
  EXPECT_EQ(machine.nodes[1].memory_bytes, std::uint64_t{4} << 30);
}

TEST(SyntheticMachine, NoNodesAndNoCoresStillGiveOneNode) {
  const Machine machine = synthetic("pu:4");
  ASSERT_EQ(machine.nodes.size(), 1u);
  EXPECT_EQ(machine.nodes[0].cores, (Cpus{0, 1, 2, 3}));
}

TEST(SyntheticMachine, NonsenseIsQuoted) {
  for (const char* text : {"banana", "numa:0", ""}) {
    try {
      (void)synthetic(text);
      ADD_FAILURE() << "accepted: " << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_config);
      EXPECT_NE(std::string(error.what()).find("\"" + std::string(text) + "\""), std::string::npos);
    }
  }
}

TEST(SyntheticMachine, LargerOnesAreRefusedBeforeHwlocTakesMinutes) {
  struct Case {
    const char* text;
    const char* found;
  };
  for (const Case& c :
       {Case{"numa:9999 core:1 pu:1", "9999 cpus"}, Case{"core:4097 1", "4097 cpus"},
        Case{"64 65", "4160 cpus"}, Case{"numa:65 core:1 pu:1", "65 nodes"},
        Case{"pack:99999999999 core:99999999999 pu:1", "at least 2147483648 cpus"}}) {
    SCOPED_TRACE(c.text);
    testing::expect_error(ErrorCode::invalid_config,
                          {"\"" + std::string(c.text) + "\"", c.found, "64 nodes and 4096 cpus"},
                          [&] { (void)synthetic(c.text); });
  }
  EXPECT_EQ(synthetic("numa:64 core:2 pu:1").nodes.size(), 64u);
  EXPECT_EQ(synthetic("pack:2 numa:1(memory=99999999) l2:1(size=8192) core:2 pu:1").nodes.size(),
            2u);
}

Cpus allowed_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  EXPECT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
  Cpus cpus;
  for (std::uint32_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

TEST(Discover, FindsExactlyTheAllowedCpus) {
  const Machine machine = discover();
  std::set<std::uint32_t> found;
  for (const Node& node : machine.nodes) {
    EXPECT_FALSE(node.cores.empty());
    EXPECT_GT(node.memory_bytes, 0u);
    for (const std::uint32_t cpu : node.cpus) EXPECT_TRUE(found.insert(cpu).second);
    for (const std::uint32_t core : node.cores) EXPECT_TRUE(found.contains(core));
  }
  EXPECT_TRUE(machine.real);
  EXPECT_EQ(Cpus(found.begin(), found.end()), allowed_cpus());
  EXPECT_NE(machine.notes.find("CPU quota: "), std::string::npos) << machine.notes;
}

TEST(Discover, RespectsTheAffinityOfItsThread) {
  const Cpus all = allowed_cpus();
  if (all.size() < 2) GTEST_SKIP() << "one cpu allowed: nothing to restrict";
  std::thread([&all] {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(all.back(), &set);
    ASSERT_EQ(sched_setaffinity(0, sizeof set, &set), 0);
    const Machine machine = discover();
    ASSERT_EQ(machine.nodes.size(), 1u);
    EXPECT_EQ(machine.nodes[0].cpus, Cpus{all.back()});
    EXPECT_EQ(machine.nodes[0].cores, Cpus{all.back()});
  }).join();
}

}  // namespace
}  // namespace outboard::topology
