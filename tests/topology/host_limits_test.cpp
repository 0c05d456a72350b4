// SPDX-License-Identifier: Apache-2.0
#include "topology/host_limits.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "topology/fixture_root.hpp"

namespace outboard::topology {
namespace {

using testing::FixtureRoot;

std::string locked(const std::string& soft) {
  return "Limit                     Soft Limit           Hard Limit           Units\n"
         "Max processes             95000                95000                processes\n"
         "Max locked memory         " +
         soft + "                unlimited            bytes\n";
}

TEST(HostLimits, NothingIsKnownOfAnEmptyRoot) {
  const FixtureRoot root;
  const HostLimits limits = read_host_limits(root.path());
  EXPECT_EQ(limits.lock_bytes, std::nullopt);
  EXPECT_FALSE(limits.may_lock_more);
  EXPECT_EQ(limits.transparent_huge_pages, "");
  EXPECT_TRUE(limits.reserved_pages.empty());
  EXPECT_EQ(limits.container, "");
  EXPECT_FALSE(limits.wsl);
}

TEST(HostLimits, LockedMemoryIsTheSoftLimit) {
  const FixtureRoot root;
  root.write("/proc/self/limits", locked("65536"));
  EXPECT_EQ(read_host_limits(root.path()).lock_bytes, 65536U);
  root.write("/proc/self/limits", locked("unlimited"));
  EXPECT_EQ(read_host_limits(root.path()).lock_bytes, std::numeric_limits<std::uint64_t>::max());
  root.write("/proc/self/limits", locked("fish"));
  EXPECT_EQ(read_host_limits(root.path()).lock_bytes, std::nullopt);
}

TEST(HostLimits, ACapabilityLiftsTheLimit) {
  const FixtureRoot root;
  root.write("/proc/self/status", "Name:\tx\nCapEff:\t0000000000004000\n");
  EXPECT_TRUE(read_host_limits(root.path()).may_lock_more);
  root.write("/proc/self/status", "Name:\tx\nCapEff:\t00000000a80425fb\n");  // docker's default
  EXPECT_FALSE(read_host_limits(root.path()).may_lock_more);
}

// The kernel asks the first user namespace for it.
TEST(HostLimits, ACapabilityOfAUserNamespaceDoesNot) {
  const FixtureRoot root;
  root.write("/proc/self/status", "Name:\tx\nCapEff:\t000001ffffffffff\n");
  for (const char* map : {"         0       1000          1\n", "0 0 65536\n", "1 1 4294967294\n",
                          "0 0 1\n1 100000 65536\n", "fish\n", ""}) {
    root.write("/proc/self/uid_map", map);
    EXPECT_FALSE(may_lock_all(root.path())) << map;
    EXPECT_FALSE(read_host_limits(root.path()).may_lock_more) << map;
  }
  root.write("/proc/self/uid_map", "         0          0 4294967295\n");
  EXPECT_TRUE(may_lock_all(root.path()));
}

TEST(HostLimits, HugePagesByNodeAndSize) {
  const FixtureRoot root;
  root.write("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
  for (const char* node : {"node0", "node1"}) {
    const std::string folder = "/sys/devices/system/node/" + std::string(node) + "/hugepages/";
    root.write(folder + "hugepages-2048kB/nr_hugepages", node[4] == '0' ? "0\n" : "512\n");
    root.write(folder + "hugepages-2048kB/free_hugepages", node[4] == '0' ? "0\n" : "500\n");
  }
  const HostLimits limits = read_host_limits(root.path());
  EXPECT_EQ(limits.transparent_huge_pages, "madvise");
  ASSERT_EQ(limits.reserved_pages.size(), 1U);
  EXPECT_EQ(limits.reserved_pages[0].os_index, 1U);
  EXPECT_EQ(limits.reserved_pages[0].page_kib, 2048U);
  EXPECT_EQ(limits.reserved_pages[0].total, 512U);
  EXPECT_EQ(limits.reserved_pages[0].free, 500U);
}

TEST(HostLimits, ContainersAndWindowsAreSeen) {
  struct Case {
    const char* file;
    const char* text;
    const char* container;
  };
  for (const Case& c : {Case{"/.dockerenv", "", "docker"}, Case{"/run/.containerenv", "", "podman"},
                        Case{"/proc/self/cgroup", "0::/kubepods.slice/pod1\n", "kubernetes"},
                        Case{"/proc/self/cgroup", "4:cpu:/docker/0123\n", "docker"},
                        Case{"/proc/self/cgroup", "0::/user.slice\n", ""}}) {
    const FixtureRoot root;
    root.write(c.file, c.text);
    EXPECT_EQ(read_host_limits(root.path()).container, c.container) << c.file << c.text;
  }
  const FixtureRoot root;
  root.write("/proc/sys/kernel/osrelease", "5.15.153.1-microsoft-standard-WSL2\n");
  EXPECT_TRUE(read_host_limits(root.path()).wsl);
  root.write("/proc/sys/kernel/osrelease", "6.1.0-18-amd64\n");
  EXPECT_FALSE(read_host_limits(root.path()).wsl);
}

TEST(HostLimits, OfThisMachineAreKnown) {
  const HostLimits limits = read_host_limits("");
  EXPECT_TRUE(limits.lock_bytes.has_value());
  EXPECT_FALSE(limits.kernel.empty());
}

}  // namespace
}  // namespace outboard::topology
