// SPDX-License-Identifier: Apache-2.0
/// The loss curve of the demo, at its own size. OUTBOARD_TEXT names files or a folder of text (else
/// made-up sentences are learned), OUTBOARD_STEPS how many steps (else 300).
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "gpt_curve.hpp"
#include "text_support.hpp"

namespace gpt {
namespace {

namespace fs = std::filesystem;

std::string from_environment(const char* name, const std::string& otherwise) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : otherwise;
}

TEST(GptDemoCurve, FollowsTheSameTrainingInDoublePrecision) {
  const fs::path folder =
      fs::path(testing::TempDir()) / ("outboard_gpt_demo_curve_" + std::to_string(getpid()));
  fs::create_directories(folder);
  const std::string made_up = (folder / "text.txt").string();
  std::ofstream(made_up) << text::test::made_up_text(500000, 3);
  const std::string data = from_environment("OUTBOARD_TEXT", made_up);
  const std::string steps = from_environment("OUTBOARD_STEPS", "300");
  const char* arguments[] = {"outboard_gpt", data.c_str(), "--steps", steps.c_str()};
  const auto options = parse_options(std::size(arguments), arguments);
  ASSERT_TRUE(options);
  ASSERT_EQ(options->shape.parameter_elems(), 1853568u);
  const Tokens tokens = load_tokens({.paths = options->data, .context = options->shape.context});
  const test::Curve mixed = test::train_mixed(*options, tokens, (folder / "log.jsonl").string());
  const test::Curve plain = test::train_double(*options, tokens, std::cout);
  fs::remove_all(folder);
  const test::CurveDifference difference = test::compare(mixed, plain);
  std::cout << command_line(*options) << "\n" << difference.text;
  EXPECT_EQ(mixed.skipped, 0u);
  EXPECT_LT(plain.last(test::kLastSteps), plain.first(1) - 2.5);
  EXPECT_LT(mixed.last(test::kLastSteps), mixed.first(1) - 2.5);
  EXPECT_LT(std::abs(difference.last_steps), 0.02);
  EXPECT_LT(std::abs(difference.held_out), 0.02);
}

}  // namespace
}  // namespace gpt
