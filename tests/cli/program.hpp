// SPDX-License-Identifier: Apache-2.0
/// Runs the built `outboard` as a user does.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "../examples/process.hpp"

namespace outboard::cli {

using text::test::Finished;

inline Finished outboard(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), OUTBOARD_PROGRAM);
  return text::test::run(
      {.arguments = std::move(arguments), .environment = {}, .interrupt_after = {}});
}

inline bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

struct Refusal {
  std::vector<std::string> arguments;
  std::string says;
};

/// Expects `says` in its one line of error, no other output, and status 2.
inline void expect_refused(std::vector<std::string> arguments, const std::string& says) {
  const Finished finished = outboard(std::move(arguments));
  EXPECT_EQ(finished.exit_code, 2) << finished.err;
  EXPECT_TRUE(has(finished.err, says)) << finished.err;
  EXPECT_EQ(std::count(finished.err.begin(), finished.err.end(), '\n'), 1) << finished.err;
  EXPECT_EQ(finished.out, "");
}

}  // namespace outboard::cli
