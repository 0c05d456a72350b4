// SPDX-License-Identifier: Apache-2.0
#include "topology/cgroup_quota.hpp"

#include <gtest/gtest.h>

#include <utility>

#include "topology/fixture_root.hpp"

namespace outboard::topology {
namespace {

using testing::FixtureRoot;

CpuQuota quota_of_v2(const std::string& cpu_max) {
  FixtureRoot root;
  root.write("/proc/self/cgroup", "0::/job\n");
  root.write("/sys/fs/cgroup/job/cpu.max", cpu_max + "\n");
  return read_quota(root.path());
}

CpuQuota quota_of_v1(const std::string& quota_us) {
  FixtureRoot root;
  root.write("/proc/self/cgroup", "5:memory:/job\n4:cpu,cpuacct:/job\n");
  root.write("/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", quota_us + "\n");
  root.write("/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
  return read_quota(root.path());
}

TEST(CgroupQuota, V2IsRoundedDownAndAtLeastOne) {
  EXPECT_EQ(quota_of_v2("400000 100000").cores, 4u);
  EXPECT_EQ(quota_of_v2("765000 100000").cores, 7u);
  EXPECT_EQ(quota_of_v2("50000 100000").cores, 1u);
  EXPECT_EQ(quota_of_v2("1200000 100000").cores, 12u);
}

TEST(CgroupQuota, V2MaxIsNoQuota) {
  const CpuQuota quota = quota_of_v2("max 100000");
  EXPECT_EQ(quota.cores, 0u);
  EXPECT_EQ(quota.source, "");
}

TEST(CgroupQuota, V1MinusOneIsNoQuota) {
  EXPECT_EQ(quota_of_v1("-1").cores, 0u);
  EXPECT_EQ(quota_of_v1("200000").cores, 2u);
  EXPECT_EQ(quota_of_v1("299999").cores, 2u);
}

TEST(CgroupQuota, SourceNamesTheFileAndItsWords) {
  const CpuQuota quota = quota_of_v2("765000 100000");
  EXPECT_NE(quota.source.find("/sys/fs/cgroup/job/cpu.max = 765000 100000"), std::string::npos)
      << quota.source;
}

/// A container that sees the host's names, and mounts its own group.
void write_container(const FixtureRoot& root, const std::string& group) {
  root.write("/proc/self/cgroup", "4:cpu,cpuacct:" + group + "\n0::/\n");
  root.write(
      "/proc/self/mountinfo",
      "22 21 0:5 / /dev rw - devtmpfs dev rw\n"
      "30 21 0:26 /docker/ID /sys/fs/cgroup/cpu,cpuacct ro,relatime master:9 - cgroup cgroup "
      "rw,cpu,cpuacct\n"
      "31 21 0:27 /docker/ID /groups/cpu rw - cgroup cgroup rw,cpuset\nfish\n");
  root.write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "800000\n");
  root.write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  root.write("/sys/fs/cgroup/cpu,cpuacct/sub/cpu.cfs_quota_us", "200000\n");
  root.write("/sys/fs/cgroup/cpu,cpuacct/sub/cpu.cfs_period_us", "100000\n");
}

TEST(CgroupQuota, GroupsBelowAContainersTopCount) {
  for (const auto& [group, cores] : {std::pair{"/docker/ID/sub", 2U},
                                     {"/docker/ID/sub/none", 2U},
                                     {"/docker/ID", 8U},
                                     {"/docker/IDs/sub", 8U},
                                     {"/../sub", 8U}}) {
    FixtureRoot root;
    write_container(root, group);
    EXPECT_EQ(read_quota(root.path()).cores, cores) << group;
  }
}

TEST(CgroupQuota, IsReadWhereTheHierarchyIsMounted) {
  FixtureRoot root;
  root.write("/proc/self/cgroup", "0::/job\n");
  root.write("/proc/self/mountinfo", "31 21 0:27 / /groups rw,nosuid - cgroup2 cgroup2 rw\n");
  root.write("/groups/job/cpu.max", "300000 100000\n");
  EXPECT_EQ(read_quota(root.path()).cores, 3U);
}

TEST(CgroupQuota, ParentsCountToo) {
  FixtureRoot root;
  root.write("/proc/self/cgroup", "0::/slice/user/job\n");
  root.write("/sys/fs/cgroup/slice/cpu.max", "300000 100000\n");
  root.write("/sys/fs/cgroup/slice/user/job/cpu.max", "max 100000\n");
  EXPECT_EQ(read_quota(root.path()).cores, 3u);
}

TEST(CgroupQuota, TheSmallestOfAllLevelsHolds) {
  FixtureRoot root;
  root.write("/proc/self/cgroup", "0::/slice/job\n");
  root.write("/sys/fs/cgroup/cpu.max", "900000 100000\n");
  root.write("/sys/fs/cgroup/slice/cpu.max", "200000 100000\n");
  root.write("/sys/fs/cgroup/slice/job/cpu.max", "500000 100000\n");
  EXPECT_EQ(read_quota(root.path()).cores, 2u);
}

TEST(CgroupQuota, V1ParentOnly) {
  FixtureRoot root;
  root.write("/proc/self/cgroup", "1:cpu:/slice/job\n");
  root.write("/sys/fs/cgroup/cpu/slice/cpu.cfs_quota_us", "200000\n");
  root.write("/sys/fs/cgroup/cpu/slice/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(read_quota(root.path()).cores, 2u);
}

// A container sees its own group as the top of the mount, while /proc may name the host's path.
TEST(CgroupQuota, TopOfTheMountStandsInForAnUnknownPath) {
  FixtureRoot root;
  root.write("/proc/self/cgroup", "0::/../../docker/0123\n");
  root.write("/sys/fs/cgroup/cpu.max", "400000 100000\n");
  EXPECT_EQ(read_quota(root.path()).cores, 4u);
}

TEST(CgroupQuota, UnifiedMountBesideV1) {
  FixtureRoot root;
  root.write("/proc/self/cgroup", "1:cpuset:/\n0::/job\n");
  root.write("/sys/fs/cgroup/unified/job/cpu.max", "600000 100000\n");
  EXPECT_EQ(read_quota(root.path()).cores, 6u);
}

TEST(CgroupQuota, StrangeFilesAreNoQuota) {
  for (const char* text : {"", "\n", "fish", "100000", "100000 0", "0 100000", "-5 100000"}) {
    EXPECT_EQ(quota_of_v2(text).cores, 0u) << text;
  }
  FixtureRoot root;
  EXPECT_EQ(read_quota(root.path()).cores, 0u);
  root.write("/proc/self/cgroup", "fish\n1:\n::\n0::\n");
  EXPECT_EQ(read_quota(root.path()).cores, 0u);
}

}  // namespace
}  // namespace outboard::topology
