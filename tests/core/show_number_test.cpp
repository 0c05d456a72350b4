// SPDX-License-Identifier: Apache-2.0
#include "core/show_number.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>

namespace outboard::core {
namespace {

TEST(ShowNumber, IsShortAndExact) {
  EXPECT_EQ(show_number(65536.0), "65536");
  EXPECT_EQ(show_number(0x1p32), "4294967296");
  EXPECT_EQ(show_number(1.0), "1");
  EXPECT_EQ(show_number(0.999), "0.999");
  EXPECT_EQ(show_number(6e-4), "0.0006");
  EXPECT_EQ(show_number(-6e-4), "-0.0006");
  EXPECT_EQ(show_number(1e-8), "1e-08");
  EXPECT_EQ(show_number(0.0), "0");
  EXPECT_EQ(show_number(std::numeric_limits<double>::infinity()), "inf");
  for (const double value :
       {1.0 / 3.0, 0x1p100, 0x1p-100, -2.5e-300, -1.2345678901234567e-4, 9999999999999998.0,
        std::numeric_limits<double>::denorm_min(), std::numeric_limits<double>::lowest()}) {
    EXPECT_EQ(std::strtod(show_number(value).c_str(), nullptr), value);
  }
}

}  // namespace
}  // namespace outboard::core
