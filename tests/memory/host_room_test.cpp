// SPDX-License-Identifier: Apache-2.0
#include "memory/host_room.hpp"

#include <gtest/gtest.h>

#include "support/expect_error.hpp"

namespace outboard::memory {
namespace {

using topology::MemoryLimit;

/// A group of 1,000 bytes of which 200 are used.
const MemoryLimit kGroup{1000, 200, "/sys/fs/cgroup/job/memory.max", "raise it there"};

TEST(HostRoom, RefusesWhatIsNotLeft) {
  testing::expect_error(
      ErrorCode::out_of_memory,
      {"801 bytes are needed (state 700, staging 101)", "800 are left of 1000",
       "/sys/fs/cgroup/job/memory.max; used 200", "1 bytes short",
       "Placement::fraction), or raise it there"},
      [] { (void)check_host_room({.state_bytes = 700, .staging_bytes = 101}, kGroup); });
}

TEST(HostRoom, ReservedPagesAreNotAskedOfTheLimit) {
  EXPECT_EQ(check_host_room({.state_bytes = 5000, .reserved_bytes = 4500}, kGroup), "");
  testing::expect_error(
      ErrorCode::out_of_memory, {"801 bytes are needed", "less 4000 in reserved huge pages"}, [] {
        (void)check_host_room({.state_bytes = 4800, .staging_bytes = 1, .reserved_bytes = 4000},
                              kGroup);
      });
}

TEST(HostRoom, WarnsWhereLessThanATenthWillBeLeft) {
  EXPECT_EQ(check_host_room({.state_bytes = 700}, kGroup), "");
  const std::string warning = check_host_room({.state_bytes = 600, .staging_bytes = 101}, kGroup);
  EXPECT_NE(warning.find("99 will be left, less than a tenth"), std::string::npos) << warning;
  EXPECT_NE(warning.find("memory.max"), std::string::npos) << warning;
  EXPECT_NE(check_host_room({.state_bytes = 800}, kGroup), "");
}

TEST(HostRoom, SmallEnginesOnAFullMachineAreNotTheCause) {
  const MemoryLimit full{1000, 950, "/proc/meminfo"};
  EXPECT_EQ(check_host_room({.state_bytes = 9}, full), "");
  EXPECT_NE(check_host_room({.state_bytes = 10}, full), "");
}

TEST(HostRoom, AnUnknownLimitAllowsEverything) {
  EXPECT_EQ(check_host_room({.state_bytes = UINT64_MAX / 2}, {}), "");
}

}  // namespace
}  // namespace outboard::memory
