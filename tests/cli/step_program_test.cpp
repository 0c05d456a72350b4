// SPDX-License-Identifier: Apache-2.0
/// `outboard bench step` as a user runs it.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "program.hpp"

namespace outboard::cli {
namespace {

std::filesystem::path scratch(const char* name) {
  return std::filesystem::path(::testing::TempDir()) /
         ("outboard_step_" + std::to_string(getpid()) + name);
}

std::string contents(const std::filesystem::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(StepProgram, PrintsATableAndWritesJsonPageAndTrace) {
  const auto json = scratch(".json"), html = scratch(".html"), trace = scratch("_trace.json");
  const Finished finished =
      outboard({"bench", "step", "--layers", "8", "--params", "8192", "--forward", "0.05",
                "--backward", "0.1", "--json", json, "--html", html, "--trace", trace});
  ASSERT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_TRUE(has(finished.out, "every way left the same bits")) << finished.out;
  for (const auto& way : nlohmann::json::parse(contents(json)).at("ways")) {
    EXPECT_LE(way.at("ratio"), 1.01) << way.at("way");
  }
  EXPECT_TRUE(has(contents(html), "</html>"));
  EXPECT_GT(nlohmann::json::parse(contents(trace)).at("traceEvents").size(), 100U);
  for (const auto& file : {json, html, trace}) std::filesystem::remove(file);
}

TEST(StepProgram, DefaultCaseIsBalancedAndItsBoundsHold) {
  const Finished finished = outboard({"bench", "step", "--steps", "2", "--json", "-"});
  ASSERT_EQ(finished.exit_code, 0) << finished.err;
  const auto json = nlohmann::json::parse(finished.out);
  EXPECT_EQ(json.at("model").at("buckets"), 64);
  double serial = 0.0;
  for (const auto& way : json.at("ways")) {
    EXPECT_LE(way.at("ratio"), 1.01) << way.at("way");
    if (way.at("way") == "serial") {
      serial = way.at("step_us").at("mean");
      const double forward = way.at("forward_us"), backward = way.at("backward_us");
      const double update = way.at("busy_us").at("update");
      EXPECT_NEAR(backward, 2 * forward, 1e-6);
      EXPECT_GT(update, forward);
      EXPECT_LT(update, forward + backward);
    }
    if (way.at("way") == "exact") {
      EXPECT_LT(way.at("step_us").at("max"), 0.8 * serial);
    }
  }
}

TEST(StepProgram, RefusesInOneLineWithStatusTwo) {
  const std::vector<Refusal> cases = {
      {{"--layers", "0"}, "layers is 0; give 1 to 4096"},
      {{"--layers", "-3"}, "--layers"},
      {{"--params", "few"}, "\"few\" is no number of parameters"},
      {{"--params", "1e9"}, "parameters of all layers is 64000000000"},
      {{"--way", "fast"},
       "no way to run a step is called \"fast\"; there are serial, blocking, exact, open"},
      {{"--forward", "nan"}, "forward's time in ms is nan"},
      {{"--pcie", "0"}, "link's rate down in GB/s is 0"},
      {{"--bucket", "12"}, "bucket in bytes is 12"},
      {{"--steps", "0"}, "steps is 0"},
      {{"--html", "/nowhere/step.html"}, "cannot write /nowhere/step.html"},
      {{"--trace", "/nowhere/step.json"}, "cannot write /nowhere/step.json"},
      {{"--unknown"}, "--unknown"},
  };
  for (const Refusal& refused : cases) {
    std::vector<std::string> arguments = {"bench", "step"};
    arguments.insert(arguments.end(), refused.arguments.begin(), refused.arguments.end());
    expect_refused(std::move(arguments), refused.says);
  }
}

}  // namespace
}  // namespace outboard::cli
