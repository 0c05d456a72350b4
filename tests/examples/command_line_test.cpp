// SPDX-License-Identifier: Apache-2.0
/// The command line, the log's lines and the sampling of bytes.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "common/format.hpp"
#include "common/sample.hpp"
#include "options.hpp"
#include "report.hpp"
#include "text_support.hpp"

namespace text {
namespace {

using example::parse_bytes;
using example::UsageError;

std::optional<Options> parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "outboard_text");
  return parse_options(static_cast<int>(arguments.size()), arguments.data());
}

std::string error_of(std::vector<const char*> arguments) {
  try {
    (void)parse(std::move(arguments));
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(ParseBytes, ReadsSuffixesAndRefusesTheRest) {
  EXPECT_EQ(parse_bytes("4096"), 4096u);
  EXPECT_EQ(parse_bytes("64KiB"), 65536u);
  EXPECT_EQ(parse_bytes("12MiB"), 12582912u);
  EXPECT_EQ(parse_bytes("1GiB"), 1073741824u);
  for (const char* bad :
       {"", "MiB", "12MB", "-1", "1.5MiB", "0", "99999999999GiB", "18446744073709551616"}) {
    EXPECT_THROW((void)parse_bytes(bad), UsageError) << bad;
  }
}

TEST(ParseOptions, TakesEveryFlag) {
  const auto options = parse({"--data",
                              "a",
                              "b",
                              "--device-memory",
                              "1MiB",
                              "--offload",
                              "off",
                              "--steps",
                              "7",
                              "--seed",
                              "3",
                              "--log",
                              "x.jsonl",
                              "--batch",
                              "5",
                              "--width",
                              "6",
                              "--embed",
                              "2",
                              "--lr",
                              "0.5",
                              "--schedule",
                              "serial",
                              "--bucket",
                              "64KiB",
                              "--threads",
                              "2",
                              "--topology",
                              "numa:2 core:1 pu:1",
                              "--max-grad-norm",
                              "2",
                              "--digest",
                              "--virtual-seed",
                              "9"});
  ASSERT_TRUE(options);
  EXPECT_EQ(options->data.size(), 2u);
  EXPECT_EQ(options->device_memory, 1048576u);
  EXPECT_FALSE(options->offload);
  EXPECT_TRUE(options->serial);
  EXPECT_TRUE(options->digest);
  EXPECT_EQ(options->bucket, 65536u);
  EXPECT_EQ(options->virtual_seed, 9u);
  EXPECT_EQ(options->topology, "numa:2 core:1 pu:1");
  EXPECT_EQ(options->steps, 7u);
}

TEST(ParseOptions, SaysInOneLineWhatIsWrong) {
  const std::vector<std::pair<std::vector<const char*>, const char*>> cases{
      {{}, "--data"},
      {{"--data", "a", "--offload", "maybe"}, "--offload"},
      {{"--data", "a", "--nonsense"}, "--nonsense"},
      {{"--data", "a", "--steps", "0"}, "--steps is 0; it must be from 1"},
      {{"--data", "a", "--batch", "x"}, "--batch"},
      {{"--data", "a", "--lr", "nan"}, "--lr"},
      {{"--data", "a", "--device-memory", "12MB"}, "\"12MB\" is not a size"},
  };
  for (const auto& [arguments, part] : cases) {
    const std::string error = error_of(arguments);
    EXPECT_NE(error.find(part), std::string::npos) << error;
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  }
}

TEST(Json, HoldsTheExactBits) {
  StepReport report;
  report.result.step = 3;
  report.result.outcome = outboard::StepOutcome::applied;
  report.loss = 0.1 + 0.2;
  report.result.grad_norm = std::nan("");
  report.digest = 0x1234;
  const auto json = nlohmann::json::parse(json_line(report));
  EXPECT_EQ(std::strtod(json["loss_bits"].get<std::string>().c_str(), nullptr), 0.1 + 0.2);
  EXPECT_TRUE(json["grad_norm"].is_null());
  EXPECT_EQ(json["digest"], "0000000000001234");
  EXPECT_EQ(json["outcome"], "applied");
  EXPECT_FALSE(json.contains("held_out"));
}

TEST(Sample, FollowsTheLogitsAndTheTemperature) {
  std::vector<float> logits(256, -20.0f);
  logits['a'] = 1.0f;
  logits['b'] = 0.0f;
  Random random(5);
  int a = 0, b = 0;
  for (int i = 0; i < 20000; ++i) {
    const std::size_t byte = example::draw(logits, 0.5, random);
    a += byte == 'a';
    b += byte == 'b';
  }
  EXPECT_EQ(a + b, 20000);
  EXPECT_NEAR(a / 20000.0, 1.0 / (1.0 + std::exp(-2.0)), 0.01) << "seed 5";
}

TEST(Sample, ShowsOnlyWhatATerminalCanTake) {
  EXPECT_EQ(example::show_text(test::as_bytes("a\x1B[31m\xC3\xA9\n\t~")), "a?[31m??\n\t~");
}

}  // namespace
}  // namespace text
