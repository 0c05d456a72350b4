// SPDX-License-Identifier: Apache-2.0
/// Machines described by files: what discover() makes of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "support/expect_error.hpp"
#include "topology/fixture_machine.hpp"
#include "topology/machine.hpp"
#include "topology/memory_limit.hpp"
#include "topology/one_node.hpp"
#include "topology/system_files.hpp"

namespace outboard::topology {
namespace {

namespace fixture = testing::fixture;
using Cpus = std::vector<std::uint32_t>;
using testing::FixtureRoot;

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
const char* const kNodes = "/sys/devices/system/node";

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

void remove_below(const FixtureRoot& root, const std::string& name) {
  std::filesystem::remove_all(root.path() + name);
}

TEST(DiscoverFixture, NodesCoresMemoryAndDistances) {
  const FixtureRoot root;
  fixture::write_machine(root, {});
  const Machine machine = discover(root.path());
  ASSERT_EQ(machine.nodes.size(), 2U);
  EXPECT_EQ(machine.nodes[0].cores, (Cpus{0, 2}));
  EXPECT_EQ(machine.nodes[0].cpus, (Cpus{0, 1, 2, 3}));
  EXPECT_EQ(machine.nodes[1].cores, (Cpus{4, 6}));
  EXPECT_EQ(machine.nodes[1].memory_bytes, 8 * kGiB);
  EXPECT_EQ(machine.distances, (Cpus{10, 21, 21, 10}));
  EXPECT_TRUE(machine.numa_known);
  EXPECT_TRUE(machine.memory_nodes.empty());
  EXPECT_FALSE(machine.real);
  const MemoryLimit limit = read_memory_limit(root.path());
  EXPECT_EQ(limit.limit_bytes, 16 * kGiB);
  EXPECT_EQ(limit.source, root.path() + "/proc/meminfo");
}

TEST(DiscoverFixture, LeavesTheEnvironmentAsItWas) {
  const FixtureRoot root;
  fixture::write_machine(root, {});
  ASSERT_EQ(setenv("HWLOC_FSROOT", "/somewhere", 1), 0);
  EXPECT_EQ(discover(root.path()).nodes.size(), 2U);
  EXPECT_STREQ(std::getenv("HWLOC_FSROOT"), "/somewhere");
  ASSERT_EQ(unsetenv("HWLOC_FSROOT"), 0);
  EXPECT_EQ(discover(root.path()).nodes.size(), 2U);
  EXPECT_EQ(std::getenv("HWLOC_FSROOT"), nullptr);
}

TEST(DiscoverFixture, AffinityRestrictsCpusAndNodes) {
  const FixtureRoot root;
  fixture::write_machine(root, {});
  fixture::allow_cpus(root, "1,3-5");
  const Machine both = discover(root.path());
  ASSERT_EQ(both.nodes.size(), 2U);
  EXPECT_EQ(both.nodes[0].cpus, (Cpus{1, 3}));
  EXPECT_EQ(both.nodes[0].cores, (Cpus{1, 3}));
  EXPECT_EQ(both.nodes[1].cpus, (Cpus{4, 5}));
  EXPECT_EQ(both.nodes[1].cores, (Cpus{4}));
  fixture::allow_cpus(root, "6");
  const Machine one = discover(root.path());
  ASSERT_EQ(one.nodes.size(), 1U);
  EXPECT_EQ(one.nodes[0].os_index, 1U);
  EXPECT_EQ(one.nodes[0].cpus, (Cpus{6}));
  EXPECT_TRUE(one.memory_nodes.empty()) << "the other node is no memory-only one";
  EXPECT_TRUE(has(one.notes, "NUMA node 0: none of its cpus is allowed")) << one.notes;
}

TEST(DiscoverFixture, QuotaIsReadBelowTheSameRoot) {
  const FixtureRoot root;
  fixture::write_machine(root, {.cores_per_node = 6, .threads_per_core = 1});
  root.write("/proc/self/cgroup", "0::/job\n");
  root.write("/sys/fs/cgroup/job/cpu.max", "765000 100000\n");
  root.write("/sys/fs/cgroup/job/memory.max", "1073741824\n");
  root.write("/sys/fs/cgroup/job/memory.current", "1048576\n");
  const Machine machine = discover(root.path());
  EXPECT_EQ(machine.quota_cores, 7U);
  EXPECT_TRUE(has(machine.quota_source, "/job/cpu.max = 765000 100000")) << machine.quota_source;
  const MemoryLimit limit = read_memory_limit(root.path());
  EXPECT_EQ(limit.limit_bytes, kGiB);
  EXPECT_TRUE(has(limit.source, "/job/memory.max"));
  EXPECT_EQ(choose_threads(machine, 0, 0).threads_per_node, (Cpus{4, 3}));
}

TEST(DiscoverFixture, MemoryOnlyNodesBelongToTheNearest) {
  const FixtureRoot root;
  fixture::write_machine(root, {});
  fixture::write_node(root, 2, 0, 0, std::uint64_t{4} << 20);
  fixture::write_distances(root, 3);  // 0 to 2: 31, 1 to 2: 21
  const Machine machine = discover(root.path());
  EXPECT_EQ(machine.nodes.size(), 2U);
  ASSERT_EQ(machine.memory_nodes.size(), 1U);
  EXPECT_EQ(machine.memory_nodes[0].os_index, 2U);
  EXPECT_EQ(machine.memory_nodes[0].memory_bytes, 4 * kGiB);
  EXPECT_EQ(machine.memory_nodes[0].nearest, 1U);
  EXPECT_EQ(machine.distances, (Cpus{10, 21, 21, 10}));
  EXPECT_TRUE(has(machine.notes, "NUMA node 2: memory only, 4096 MiB, nearest to node 1"))
      << machine.notes;
}

struct BrokenNodes {
  const char* name;
  const char* says;
  void (*break_it)(const FixtureRoot& root);
};

void PrintTo(const BrokenNodes& broken, std::ostream* out) {
  *out << broken.name;
}

class WithoutNumaInformation : public ::testing::TestWithParam<BrokenNodes> {};

TEST_P(WithoutNumaInformation, OneNodeHasAllAllowedCpusAndAllMemory) {
  const FixtureRoot root;
  fixture::write_machine(root, {});
  fixture::allow_cpus(root, "0-6");
  GetParam().break_it(root);
  const Machine machine = discover(root.path());
  ASSERT_EQ(machine.nodes.size(), 1U);
  EXPECT_EQ(machine.nodes[0].cpus, (Cpus{0, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(machine.nodes[0].cores, (Cpus{0, 2, 4, 6}));
  EXPECT_EQ(machine.nodes[0].memory_bytes, 16 * kGiB);
  EXPECT_FALSE(machine.numa_known);
  EXPECT_TRUE(machine.distances.empty());
  EXPECT_TRUE(has(machine.notes, "NUMA: not available (")) << machine.notes;
  EXPECT_TRUE(has(machine.notes, GetParam().says)) << machine.notes;
  EXPECT_EQ(choose_threads(machine, 0, 0).threads_per_node, (Cpus{4}));
}

INSTANTIATE_TEST_SUITE_P(
    Files, WithoutNumaInformation,
    ::testing::Values(BrokenNodes{"no_folder", "No such file or directory",
                                  [](const FixtureRoot& root) { remove_below(root, kNodes); }},
                      BrokenNodes{"empty_folder", "has no nodes",
                                  [](const FixtureRoot& root) {
                                    remove_below(root, kNodes);
                                    std::filesystem::create_directories(root.path() + kNodes);
                                  }},
                      BrokenNodes{"unreadable", "Not a directory",
                                  [](const FixtureRoot& root) {
                                    remove_below(root, kNodes);
                                    root.write(kNodes, "");
                                  }},
                      BrokenNodes{"no_cpulist", "node0/cpulist is missing",
                                  [](const FixtureRoot& root) {
                                    remove_below(root, fixture::node_folder(0) + "/cpulist");
                                    remove_below(root, fixture::node_folder(0) + "/cpumap");
                                  }},
                      BrokenNodes{"no_meminfo", "node0/meminfo is missing",
                                  [](const FixtureRoot& root) {
                                    remove_below(root, fixture::node_folder(0) + "/meminfo");
                                  }},
                      BrokenNodes{"strange_meminfo", "node1/meminfo is missing or has no MemTotal",
                                  [](const FixtureRoot& root) {
                                    root.write(fixture::node_folder(1) + "/meminfo", "fish\n");
                                  }}),
    [](const auto& broken) { return std::string(broken.param.name); });

TEST(OneNode, AnEmptyRootIsOneCpu) {
  const FixtureRoot root;
  const Machine machine = discover(root.path());
  ASSERT_EQ(machine.nodes.size(), 1U);
  EXPECT_EQ(machine.nodes[0].cores, (Cpus{0}));
  EXPECT_EQ(machine.nodes[0].memory_bytes, 0U);
  EXPECT_TRUE(has(machine.notes, "allowed cpus: unknown, 1 assumed")) << machine.notes;
}

TEST(OneNode, CpusThatAreOfflineAreLeftOut) {
  const FixtureRoot root;
  root.write("/sys/devices/system/cpu/online", "0-1,3\n");
  fixture::allow_cpus(root, "0-7");
  EXPECT_EQ(discover(root.path()).nodes[0].cpus, (Cpus{0, 1, 3}));
}

TEST(OneNode, OfThisMachineHasTheCpusThatHwlocFinds) {
  Machine by_files;
  add_one_node(by_files, "");
  Cpus by_hwloc;
  std::size_t cores = 0;
  for (const Node& node : discover().nodes) {
    by_hwloc.insert(by_hwloc.end(), node.cpus.begin(), node.cpus.end());
    cores += node.cores.size();
  }
  std::ranges::sort(by_hwloc);  // nodes need not follow each other in the numbers of their cpus
  EXPECT_EQ(by_files.nodes[0].cpus, by_hwloc);
  EXPECT_EQ(by_files.nodes[0].cores.size(), cores);
  EXPECT_GT(by_files.nodes[0].memory_bytes, 0U);
}

TEST(CpuList, RangesSinglesAndNothing) {
  EXPECT_EQ(parse_cpu_list("0-2,7\n"), (Cpus{0, 1, 2, 7}));
  EXPECT_EQ(parse_cpu_list("3, 1-2,2"), (Cpus{1, 2, 3}));
  EXPECT_EQ(parse_cpu_list(" \n"), Cpus{});
  for (const char* text : {"fish", "2-1", "1-", "-1", ",", "0-99999999", "1 2", "4294967296"}) {
    EXPECT_EQ(parse_cpu_list(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace outboard::topology
