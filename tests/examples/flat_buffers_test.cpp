// SPDX-License-Identifier: Apache-2.0
// The trainer of flat buffers learns the same with its own optimizer and with the engine's.

#include <gtest/gtest.h>

#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

#include "process.hpp"

namespace {

struct Curve {
  std::vector<double> losses, norms;
  double right_percent = 0.0;
};

Curve curve_of(const char* program) {
  const text::test::Finished finished = text::test::run({{program, "500"}, {}, ""});
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  Curve run;
  std::istringstream lines(finished.out);
  for (std::string line; std::getline(lines, line);) {
    int step = 0;
    double loss = 0.0, norm = 0.0;
    if (std::sscanf(line.c_str(), "step %d loss %lf gradient norm %lf", &step, &loss, &norm) == 3) {
      run.losses.push_back(loss);
      run.norms.push_back(norm);
    }
    const auto comma = line.find("; ");
    if (comma != std::string::npos) run.right_percent = std::stod(line.substr(comma + 2));
  }
  return run;
}

TEST(FlatBuffers, TheEngineTrainsAsTheTrainersOwnOptimizer) {
  const Curve plain = curve_of(OUTBOARD_FLAT_PLAIN_PROGRAM);
  const Curve offload = curve_of(OUTBOARD_FLAT_OFFLOAD_PROGRAM);
  ASSERT_EQ(plain.losses.size(), 3U);
  ASSERT_EQ(offload.losses.size(), 3U);
  // Both round to FP32 in another order, and the difference grows with the steps.
  EXPECT_EQ(plain.losses[0], offload.losses[0]);
  EXPECT_NEAR(offload.losses[1], plain.losses[1], 0.02 * plain.losses[1]);
  EXPECT_NEAR(offload.losses[2], plain.losses[2], 0.10 * plain.losses[2]);
  EXPECT_GT(offload.right_percent, 95.0);
  EXPECT_GT(plain.right_percent, 95.0);
}

}  // namespace
