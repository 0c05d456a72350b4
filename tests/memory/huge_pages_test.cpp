// SPDX-License-Identifier: Apache-2.0
#include "memory/huge_pages.hpp"

#include <gtest/gtest.h>

#include "topology/fixture_root.hpp"

namespace outboard::memory {
namespace {

using testing::FixtureRoot;

constexpr const char* kMachine = "/sys/kernel/mm/hugepages/hugepages-2048kB/";

std::string of_node(int node) {
  return "/sys/devices/system/node/node" + std::to_string(node) + "/hugepages/hugepages-2048kB/";
}

TEST(HugePages, ReservedOnesAreThoseThatNobodyWasPromised) {
  FixtureRoot root;
  root.write(std::string(kMachine) + "free_hugepages", "100\n");
  root.write(std::string(kMachine) + "resv_hugepages", "30\n");
  root.write(of_node(0) + "free_hugepages", "60\n");
  root.write(of_node(1) + "free_hugepages", "20\n");
  EXPECT_EQ(reserved_huge_bytes(root.path(), {}), 70 * kHugePage);
  EXPECT_EQ(reserved_huge_bytes(root.path(), 0), 30 * kHugePage);
  EXPECT_EQ(reserved_huge_bytes(root.path(), 1), 0U);
  EXPECT_EQ(reserved_huge_bytes(root.path(), 2), 0U);
}

TEST(HugePages, ReservedOnesAreThoseThatTheGroupsLetUsHave) {
  FixtureRoot root;
  root.write(std::string(kMachine) + "free_hugepages", "100\n");
  root.write("/proc/self/cgroup", "0::/pod/job\n");
  const std::string pod = "/sys/fs/cgroup/pod/hugetlb.2MB.";
  root.write("/sys/fs/cgroup/pod/job/hugetlb.2MB.max", "max\n");
  root.write(pod + "max", "20971520\n");
  EXPECT_EQ(reserved_huge_bytes(root.path(), {}), 10 * kHugePage);
  root.write(pod + "current", "6291456\n");
  EXPECT_EQ(reserved_huge_bytes(root.path(), {}), 7 * kHugePage);
  root.write("/sys/fs/cgroup/pod/job/hugetlb.2MB.rsvd.max", "2097151\n");
  EXPECT_EQ(reserved_huge_bytes(root.path(), {}), 0U);
}

TEST(HugePages, ReservedOnesOfThePodsThatAreGivenNone) {
  FixtureRoot root;
  root.write(std::string(kMachine) + "free_hugepages", "51200\n");
  root.write("/proc/self/cgroup", "7:hugetlb:/kubepods/pod1\n");
  const std::string pod = "/sys/fs/cgroup/hugetlb/kubepods/pod1/hugetlb.2MB.";
  root.write(pod + "limit_in_bytes", "9223372036852678656\n");
  EXPECT_EQ(reserved_huge_bytes(root.path(), {}), 51200 * kHugePage);
  root.write(pod + "limit_in_bytes", "0\n");
  EXPECT_EQ(reserved_huge_bytes(root.path(), {}), 0U);
}

TEST(HugePages, NoneWhereTheSystemSaysNothingOrNonsense) {
  FixtureRoot root;
  EXPECT_EQ(reserved_huge_bytes(root.path(), {}), 0U);
  root.write(std::string(kMachine) + "free_hugepages", "many\n");
  EXPECT_EQ(reserved_huge_bytes(root.path(), {}), 0U);
  EXPECT_FALSE(transparent_huge_pages(root.path()));
}

TEST(HugePages, TransparentOnesUnlessTheyAreOff) {
  for (const auto& [line, given] :
       {std::pair{"[always] madvise never\n", true}, std::pair{"always [madvise] never\n", true},
        std::pair{"always madvise [never]\n", false}}) {
    FixtureRoot root;
    root.write("/sys/kernel/mm/transparent_hugepage/enabled", line);
    EXPECT_EQ(transparent_huge_pages(root.path()), given) << line;
  }
}

}  // namespace
}  // namespace outboard::memory
