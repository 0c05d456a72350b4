// SPDX-License-Identifier: Apache-2.0
/// Mixed precision and an optimizer on the host cost nothing that a loss curve shows.
#include "gpt_curve.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iostream>

#include "text_support.hpp"

namespace gpt {
namespace {

namespace fs = std::filesystem;

TEST(GptCurve, FollowsTheSameTrainingInDoublePrecision) {
  const fs::path folder =
      fs::path(testing::TempDir()) / ("outboard_gpt_curve_" + std::to_string(getpid()));
  fs::create_directories(folder);
  const std::string text = (folder / "text.txt").string();
  std::ofstream(text) << text::test::made_up_text(200000, 3);
  const char* arguments[] = {
      "outboard_gpt", text.c_str(), "--preset",      "tiny", "--steps",         "250",
      "--lr",         "0.004",      "--eval-tokens", "4096", "--max-grad-norm", "0.5"};
  const auto options = parse_options(std::size(arguments), arguments);
  ASSERT_TRUE(options);
  const Tokens tokens = load_tokens({.paths = options->data, .context = options->shape.context});
  const test::Curve mixed = test::train_mixed(*options, tokens, (folder / "log.jsonl").string());
  const test::Curve plain = test::train_double(*options, tokens, std::cout);
  fs::remove_all(folder);
  ASSERT_EQ(mixed.training.size(), options->steps);
  const test::CurveDifference difference = test::compare(mixed, plain);
  std::cout << difference.text;
  EXPECT_EQ(mixed.skipped, 0u) << "a skipped step would be one that the other run took";
  // Blind guessing costs 5.5 nats; with the grammar learned 0.3 are left.
  EXPECT_GT(plain.first(1), 5.0);
  EXPECT_LT(plain.last(test::kLastSteps), 1.0);
  EXPECT_LT(mixed.last(test::kLastSteps), 1.0);
  EXPECT_LT(std::abs(difference.last_steps), 0.02);
  EXPECT_LT(std::abs(difference.held_out), 0.02);
  // Rounding activations to 11 bits moves a step's loss by 0.002 at most and 0.0004 on average. No
  // decay, a beta2 of 0.98 for 0.99 and no clipping each move it by ten times as much on the way,
  // and may end at the same loss.
  EXPECT_LT(difference.largest, 0.01);
  EXPECT_LT(difference.mean, 0.0015);
}

}  // namespace
}  // namespace gpt
