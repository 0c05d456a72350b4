// SPDX-License-Identifier: Apache-2.0
/// `outboard plan` as a user runs it.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "program.hpp"

namespace outboard::cli {
namespace {

std::vector<std::string> with_plan(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "plan");
  return arguments;
}

Finished plan(std::vector<std::string> arguments) {
  return outboard(with_plan(std::move(arguments)));
}

TEST(PlanProgram, PrintsATableAndWritesJson) {
  const std::filesystem::path file = std::filesystem::path(::testing::TempDir()) /
                                     ("outboard_plan_" + std::to_string(getpid()) + ".json");
  const std::filesystem::path page = file.string() + ".html";
  const std::filesystem::path trace = file.string() + ".trace";
  const Finished finished =
      plan({"--params", "7b", "--gpu-mem", "24GiB", "--host-mem", "256GiB", "--pcie", "25",
            "--dram", "60", "--tflops", "150", "--json", file, "--html", page, "--trace", trace});
  ASSERT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_TRUE(has(finished.out, "7,000,000,000 parameters"));
  EXPECT_TRUE(has(finished.out, "fits"));
  std::ifstream in(file);
  EXPECT_EQ(nlohmann::json::parse(in).at("parameters"), 7'000'000'000U);
  std::ifstream drawn(page);
  const std::string html{std::istreambuf_iterator<char>(drawn), {}};
  EXPECT_TRUE(has(html, "all state on the host: ") && has(html, "</html>"));
  std::ifstream traced(trace);
  EXPECT_GT(nlohmann::json::parse(traced).at("traceEvents").size(), 10'000U);
  for (const auto& path : {file, page, trace}) std::filesystem::remove(path);
}

TEST(PlanProgram, MeasuresTheHostWhereItIsNotGiven) {
  const Finished finished = plan({"--model", "gpt2", "--json", "-"});
  ASSERT_EQ(finished.exit_code, 0) << finished.err;
  const auto json = nlohmann::json::parse(finished.out);
  EXPECT_EQ(json.at("request").at("host_update_params_per_s").at("from"), "measured");
  EXPECT_EQ(json.at("request").at("link_bytes_per_s").at("from"), "assumed");
}

TEST(PlanProgram, ReadsAConfigurationFile) {
  const std::filesystem::path file = std::filesystem::path(::testing::TempDir()) /
                                     ("outboard_config_" + std::to_string(getpid()) + ".json");
  std::ofstream(file) << R"({"hidden_size": 512, "num_hidden_layers": 4, "vocab_size": 1000,
                             "num_attention_heads": 8, "intermediate_size": 1024})";
  const Finished finished = plan({"--config", file, "--dram", "60"});
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_TRUE(has(finished.out, "4 layers of width 512"));
  std::filesystem::remove(file);
}

TEST(PlanProgram, RefusesInOneLineWithStatusTwo) {
  const std::vector<Refusal> cases = {
      {{}, "one of --params, --model and --config"},
      {{"--params", "many"}, "\"many\" is no number of parameters"},
      {{"--model", "gpt9"}, "no model is called \"gpt9\""},
      {{"--params", "1b", "--gpu-mem", "lots"}, "\"lots\" is no amount of memory"},
      {{"--params", "1b", "--dtype", "f64"}, "f64"},
      {{"--params", "1b", "--dram", "60", "--tokens", "2", "--micro-batches", "3"}, "2 tokens"},
      {{"--params", "1b", "--dram", "60", "--schedule", "hasty"},
       "no schedule is called \"hasty\"; there are exact, blocking, open, serial"},
      {{"--params", "1b", "--fraction", "1.5"}, "--fraction"},
      {{"--params", "1b", "--accumulate", "nobody"}, "--accumulate"},
      {{"--params", "1m", "--dram", "60", "--fraction", "0.5"}, "not within 2 %"},
      {{"--config", "/nowhere/config.json"}, "cannot read /nowhere/config.json"},
      {{"--params", "1b", "--dram", "60", "--json", "/nowhere/p.json"},
       "cannot write /nowhere/p.json"},
      {{"--params", "1b", "--dram", "60", "--html", "/nowhere/p.html"},
       "cannot write /nowhere/p.html"},
      {{"--params", "1b", "--dram", "60", "--trace", "/nowhere/p.trace"},
       "cannot write /nowhere/p.trace"},
  };
  for (const Refusal& refused : cases) {
    expect_refused(with_plan(refused.arguments), refused.says);
  }
}

}  // namespace
}  // namespace outboard::cli
