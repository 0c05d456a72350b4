// SPDX-License-Identifier: Apache-2.0
#include "topology/memory_limit.hpp"

#include <gtest/gtest.h>

#include "topology/fixture_root.hpp"

namespace outboard::topology {
namespace {

using testing::FixtureRoot;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

/// 16 GiB, of which 10 GiB are free.
void write_machine(const FixtureRoot& root) {
  root.write("/proc/meminfo",
             "MemTotal:       16777216 kB\nMemFree:         1048576 kB\n"
             "MemAvailable:   10485760 kB\n");
}

void write_v2(const FixtureRoot& root, const std::string& group, const std::string& max,
              const std::string& current) {
  const std::string folder = "/sys/fs/cgroup" + group;
  root.write(folder + "/memory.max", max + "\n");
  root.write(folder + "/memory.current", current + "\n");
}

TEST(MemoryLimit, IsTheMachinesWithoutGroups) {
  const FixtureRoot root;
  write_machine(root);
  const MemoryLimit limit = read_memory_limit(root.path());
  EXPECT_EQ(limit.limit_bytes, 16384 * kMiB);
  EXPECT_EQ(limit.used_bytes, 6144 * kMiB);
  EXPECT_EQ(limit.left_bytes(), 10240 * kMiB);
  EXPECT_EQ(limit.source, root.path() + "/proc/meminfo");
}

TEST(MemoryLimit, IsTheGroupsWhereLessIsLeft) {
  const FixtureRoot root;
  write_machine(root);
  root.write("/proc/self/cgroup", "0::/job\n");
  write_v2(root, "/job", "268435456", "104857600");
  const MemoryLimit limit = read_memory_limit(root.path());
  EXPECT_EQ(limit.limit_bytes, 256 * kMiB);
  EXPECT_EQ(limit.used_bytes, 100 * kMiB);
  EXPECT_EQ(limit.source, root.path() + "/sys/fs/cgroup/job/memory.max");
}

TEST(MemoryLimit, CountsNoFilePagesThatCanBeGivenUp) {
  const FixtureRoot root;
  root.write("/proc/self/cgroup", "0::/job\n");
  write_v2(root, "/job", "268435456", "104857600");
  root.write("/sys/fs/cgroup/job/memory.stat",
             "anon 1000\nfile 94371840\ninactive_file 73400320\nactive_file 10485760\n");
  EXPECT_EQ(read_memory_limit(root.path()).used_bytes, 20 * kMiB);
  root.write("/sys/fs/cgroup/job/memory.stat",
             "inactive_file 73400320\nslab_reclaimable 31457280\n"
             "slab_unreclaimable 999\n");
  EXPECT_EQ(read_memory_limit(root.path()).used_bytes, 0U) << "directories' entries go too";
  root.write("/sys/fs/cgroup/job/memory.stat", "inactive_file 999999999999\n");
  EXPECT_EQ(read_memory_limit(root.path()).used_bytes, 0U);
}

TEST(MemoryLimit, IsTheLargerGroupsWhereThatIsFuller) {
  const FixtureRoot root;
  write_machine(root);
  root.write("/proc/self/cgroup", "0::/slice/job\n");
  write_v2(root, "/slice", "1073741824", "1070000000");
  write_v2(root, "/slice/job", "268435456", "1048576");
  EXPECT_EQ(read_memory_limit(root.path()).limit_bytes, 1024 * kMiB);
}

TEST(MemoryLimit, MaxIsNone) {
  const FixtureRoot root;
  write_machine(root);
  root.write("/proc/self/cgroup", "0::/job\n");
  write_v2(root, "/job", "max", "104857600");
  EXPECT_EQ(read_memory_limit(root.path()).limit_bytes, 16384 * kMiB);
}

TEST(MemoryLimit, IsReadInTheFirstVersionToo) {
  const FixtureRoot root;
  write_machine(root);
  root.write("/proc/self/cgroup", "5:memory:/job\n4:cpu,cpuacct:/other\n");
  const std::string folder = "/sys/fs/cgroup/memory/job";
  root.write(folder + "/memory.limit_in_bytes", "268435456\n");
  root.write(folder + "/memory.usage_in_bytes", "52428800\n");
  root.write(folder + "/memory.stat",
             "inactive_file 1\ntotal_inactive_file 10485760\ntotal_active_file 0\n");
  const MemoryLimit limit = read_memory_limit(root.path());
  EXPECT_EQ(limit.limit_bytes, 256 * kMiB);
  EXPECT_EQ(limit.used_bytes, 40 * kMiB);
  root.write(folder + "/memory.limit_in_bytes", "9223372036854771712\n");  // none
  EXPECT_EQ(read_memory_limit(root.path()).limit_bytes, 16384 * kMiB);
}

/// Of 8 GiB: 1 GiB free, 2 GiB in files' pages, 3 MiB in slabs that can go.
void write_node(const FixtureRoot& root, int number) {
  const std::string node = "Node " + std::to_string(number);
  root.write("/sys/devices/system/node/node" + std::to_string(number) + "/meminfo",
             node + " MemTotal: 8388608 kB\n" + node + " MemFree: 1048576 kB\n" + node +
                 " Active(file): 1048576 kB\n" + node + " Inactive(file): 1048576 kB\n" + node +
                 " SReclaimable: 3072 kB\n");
}

TEST(MemoryLimit, IsOfTheAllowedNodesWhereNotAllAre) {
  const FixtureRoot root;
  write_machine(root);
  for (const int node : {0, 1, 10}) write_node(root, node);
  root.write("/sys/devices/system/node/node2/meminfo", "Node 2 MemTotal: 0 kB\n");
  root.write("/proc/self/status", "Name:\ta\nMems_allowed_list:\t0,10\n");
  MemoryLimit limit = read_memory_limit(root.path());
  EXPECT_EQ(limit.limit_bytes, 16384 * kMiB);
  EXPECT_EQ(limit.left_bytes(), 2 * (3072 + 3) * kMiB);
  EXPECT_EQ(limit.source, root.path() + "/proc/self/status, Mems_allowed_list: 0,10");
  EXPECT_NE(limit.remedy.find("cpuset"), std::string::npos);
  root.write("/proc/zoneinfo",
             "Node 1, zone Normal\n  high 999999\nNode 10, zone Normal\n"
             "  high 256\n");
  EXPECT_LT(read_memory_limit(root.path()).left_bytes(), limit.left_bytes());
  root.write("/proc/self/status", "Mems_allowed_list:\t0-1,10\n");
  limit = read_memory_limit(root.path());
  EXPECT_EQ(limit.source, root.path() + "/proc/meminfo");
  EXPECT_NE(limit.remedy, "");
}

TEST(MemoryLimit, OfAGroupWithinTheAllowedNodesIsTheGroups) {
  const FixtureRoot root;
  write_machine(root);
  for (const int node : {0, 1}) write_node(root, node);
  root.write("/proc/self/status", "Mems_allowed_list:\t1\n");
  root.write("/proc/self/cgroup", "0::/job\n");
  write_v2(root, "/job", "268435456", "104857600");
  EXPECT_EQ(read_memory_limit(root.path()).limit_bytes, 256 * kMiB);
  write_v2(root, "/job", "12884901888", "104857600");
  EXPECT_EQ(read_memory_limit(root.path()).limit_bytes, 8192 * kMiB);
}

TEST(MemoryLimit, StrangeFilesLimitNothing) {
  const FixtureRoot root;
  EXPECT_FALSE(read_memory_limit(root.path()).known());
  root.write("/proc/meminfo", "MemTotal: many kB\n\nMemAvailable:\n");
  root.write("/proc/self/status", "Mems_allowed_list:\tfish\n");
  root.write("/sys/devices/system/node/nodefish/meminfo", "Node fish MemTotal: 1 kB\n");
  root.write("/sys/devices/system/node/node0/meminfo", "Node 0 MemFree: 1 kB\n");
  root.write("/proc/self/cgroup", "0::/job\n");
  EXPECT_FALSE(read_memory_limit(root.path()).known());
  for (const char* text : {"", "fish", "-1", "0"}) {
    write_v2(root, "/job", text, "104857600");
    EXPECT_FALSE(read_memory_limit(root.path()).known()) << text;
  }
  write_v2(root, "/job", "268435456", "fish");
  EXPECT_FALSE(read_memory_limit(root.path()).known());
}

TEST(MemoryLimit, OfThisMachineIsKnown) {
  const MemoryLimit limit = read_memory_limit("");
  EXPECT_TRUE(limit.known());
  EXPECT_GT(limit.left_bytes(), 0U);
  EXPECT_NE(limit.source, "");
}

}  // namespace
}  // namespace outboard::topology
