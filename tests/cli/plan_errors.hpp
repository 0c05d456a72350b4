// SPDX-License-Identifier: Apache-2.0
/// How far planned bytes are from those of a run.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>

namespace outboard::cli {

/// Fails for a total that is more than 10 % over, or more than 2 % under.
class PlanErrors {
 public:
  void compare(const char* what, std::uint64_t planned, std::uint64_t real) {
    const double error = static_cast<double>(planned) / static_cast<double>(real) - 1.0;
    over_ = std::max(over_, error);
    under_ = std::min(under_, error);
    EXPECT_LE(error, 0.10) << what << ": planned " << planned << ", measured " << real;
    EXPECT_GE(error, -0.02) << what << ": planned " << planned << ", measured " << real;
  }
  void print(std::size_t count, const char* of) const {
    std::printf("%zu %s: at most %.2f %% over, %.2f %% under\n", count, of, 100 * over_,
                -100 * under_);
  }

 private:
  double over_ = 0.0, under_ = 0.0;
};

}  // namespace outboard::cli
