// SPDX-License-Identifier: Apache-2.0
#include "update_bench/series.hpp"

#include <gtest/gtest.h>

namespace outboard::update_bench {
namespace {

TEST(Series, QuartilesOfFive) {
  const Summary summary = summarize({5, 1, 4, 2, 3});
  EXPECT_EQ(summary.median, 3);
  EXPECT_EQ(summary.low, 2);
  EXPECT_EQ(summary.high, 4);
  EXPECT_EQ(summary.min, 1);
  EXPECT_EQ(summary.max, 5);
}

TEST(Series, QuartilesBetweenValues) {
  const Summary summary = summarize({0, 4, 8, 12});
  EXPECT_EQ(summary.median, 6);
  EXPECT_EQ(summary.low, 3);
  EXPECT_EQ(summary.high, 9);
  EXPECT_EQ(summarize({7}).median, 7);
}

TEST(Series, RatiosAreOfEachRepeat) {
  const std::vector<double> slow = {2, 20, 2};
  const std::vector<double> base = {1, 10, 2};  // the second repeat was disturbed
  EXPECT_EQ(ratios(slow, base), (std::vector<double>{2, 2, 1}));
}

}  // namespace
}  // namespace outboard::update_bench
