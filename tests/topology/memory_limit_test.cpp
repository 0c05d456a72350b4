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

TEST(MemoryLimit, StrangeFilesLimitNothing) {
  const FixtureRoot root;
  EXPECT_FALSE(read_memory_limit(root.path()).known());
  root.write("/proc/meminfo", "MemTotal: many kB\n\nMemAvailable:\n");
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
