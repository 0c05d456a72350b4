// SPDX-License-Identifier: Apache-2.0
#include "simd/target.hpp"

#include <cstdlib>

#include "tests/simd/simd_support.hpp"

namespace outboard::simd::testing {
namespace {

TEST(Target, ScalarIsAlwaysThereAndLast) {
  const std::vector<std::string> targets = supported_targets();
  ASSERT_FALSE(targets.empty());
  EXPECT_EQ(targets.back(), "scalar");
}

TEST(Target, EachCanBeForcedAndTheDefaultComesBack) {
  const std::string before(active_target());
  for (const std::string& target : supported_targets()) {
    EXPECT_TRUE(force_target(target));
    EXPECT_EQ(active_target(), target);
  }
  EXPECT_TRUE(force_target(""));
  EXPECT_EQ(active_target(), before);
}

TEST(Target, UnknownNameIsRefusedAndChangesNothing) {
  ASSERT_TRUE(force_target("scalar"));
  for (const char* name : {"sse9", "AVX2", "scalar ", "default"}) {
    EXPECT_FALSE(force_target(name)) << name;
    EXPECT_EQ(active_target(), "scalar");
  }
  ASSERT_TRUE(force_target(""));
}

// Scheduled by ctest with OUTBOARD_SIMD set; the plain run has nothing to look at.
TEST(Environment, DISABLED_ValueIsFollowedOrReported) {
  const char* value = std::getenv("OUTBOARD_SIMD");
  ASSERT_NE(value, nullptr) << "set OUTBOARD_SIMD";
  const std::vector<std::string> targets = supported_targets();
  if (std::ranges::find(targets, value) != targets.end()) {
    EXPECT_EQ(active_target(), value);
    EXPECT_EQ(environment_problem(), "");
    ASSERT_TRUE(force_target(targets.front()));
    ASSERT_TRUE(force_target(""));
    EXPECT_EQ(active_target(), value);
  } else {
    EXPECT_EQ(active_target(), targets.front());
    EXPECT_NE(environment_problem().find(value), std::string::npos);
    EXPECT_NE(environment_problem().find("scalar"), std::string::npos);
  }
}

}  // namespace
}  // namespace outboard::simd::testing
