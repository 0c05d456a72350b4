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

template <class Parse>
std::string complaint(Parse parse) {
  try {
    (void)parse();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(ParseBytes, ReadsSuffixesAndRefusesTheRest) {
  const example::Limits limits{"--room", 1, UINT64_MAX};
  EXPECT_EQ(parse_bytes("4096", limits), 4096u);
  EXPECT_EQ(parse_bytes("64KiB", limits), 65536u);
  EXPECT_EQ(parse_bytes("12MiB", limits), 12582912u);
  EXPECT_EQ(parse_bytes("1GiB", limits), 1073741824u);
  for (const char* bad :
       {"", "MiB", "12MB", "-1", "1.5MiB", "99999999999GiB", "18446744073709551616"}) {
    EXPECT_EQ(complaint([&] { return parse_bytes(bad, limits); }),
              "--room is \"" + std::string(bad) +
                  "\"; write a whole number of bytes, KiB, MiB or GiB, as 12MiB; see --help");
  }
  EXPECT_EQ(complaint([] {
              return parse_bytes("3KiB", {"--room", 4096, 1 << 20});
            }),
            "--room is 3KiB; it must be from 4KiB to 1MiB; see --help");
  EXPECT_EQ(complaint([] {
              return parse_bytes("1025KiB", {"--room", 4096, 1 << 20});
            }),
            "--room is 1025KiB; it must be from 4KiB to 1MiB; see --help");
  for (const std::size_t bytes : {1ul, 1000ul, 1536ul, 3ul << 20, 5ul << 30}) {
    EXPECT_EQ(parse_bytes(example::spell_bytes(bytes), limits), bytes);
  }
}

TEST(ParseCount, NamesTheFlagTheTextAndTheLimits) {
  const example::Limits limits{"--steps", 1, 1000};
  EXPECT_EQ(example::parse_count("1000", limits), 1000u);
  for (const char* bad : {"", "-5", "1.5", "ten", "1e3", " 7", "99999999999999999999"}) {
    EXPECT_EQ(complaint([&] { return example::parse_count(bad, limits); }),
              "--steps is \"" + std::string(bad) +
                  "\"; it must be a whole number from 1 to 1000; see --help");
  }
  for (const char* outside : {"0", "1001"}) {
    EXPECT_EQ(complaint([&] { return example::parse_count(outside, limits); }),
              "--steps is " + std::string(outside) + "; it must be from 1 to 1000; see --help");
  }
}

TEST(ParseNumber, TakesFiniteOnesOfTheRightSign) {
  using example::parse_number;
  using example::Sign;
  EXPECT_EQ(parse_number("3e-4", "--lr", Sign::not_negative), 3e-4);
  EXPECT_EQ(parse_number("0", "--lr", Sign::not_negative), 0.0);
  for (const char* bad : {"", "-1", "nan", "inf", "1e400", "0.1x"}) {
    EXPECT_EQ(complaint([&] { return parse_number(bad, "--lr", Sign::not_negative); }),
              "--lr is \"" + std::string(bad) +
                  "\"; it must be a finite number of at least 0; see --help");
  }
  EXPECT_NE(complaint([] { return parse_number("0", "--t", Sign::positive); }).find("above 0"),
            std::string::npos);
  for (const double value : {0.1, 1.0 / 3.0, 2e-3, 5e-324}) {
    EXPECT_EQ(parse_number(example::spell_number(value), "--lr", Sign::not_negative), value);
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
  EXPECT_EQ(options->offload.placement, outboard::Placement::device_resident);
  EXPECT_EQ(options->schedule, outboard::Schedule::serial);
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
      {{"--data", "a", "--device-memory", "12MB"},
       "--device-memory is \"12MB\"; write a whole number"},
  };
  for (const auto& [arguments, part] : cases) {
    const std::string error = error_of(arguments);
    EXPECT_NE(error.find(part), std::string::npos) << error;
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  }
}

/// Each names both options and what to do, before anything is made.
TEST(ParseOptions, RefusesWhatAnOpenScheduleCannotDo) {
  const std::vector<const char*> open{"--data", "a", "--schedule", "open"};
  const auto with = [&open](std::vector<const char*> more) {
    more.insert(more.begin(), open.begin(), open.end());
    return more;
  };
  const std::string clips = error_of(with({"--loss-scale", "8"}));
  EXPECT_EQ(clips.find("--schedule open cannot clip, and --max-grad-norm is 1"), 0U) << clips;
  EXPECT_NE(clips.find("give --max-grad-norm 0, or take --schedule exact"), std::string::npos);
  const std::string scales = error_of(with({"--max-grad-norm", "0"}));
  EXPECT_EQ(scales.find("--schedule open needs a fixed --loss-scale"), 0U) << scales;
  EXPECT_NE(scales.find("give --loss-scale 1024, or take --schedule exact"), std::string::npos);
  const std::string moves =
      error_of(with({"--max-grad-norm", "0", "--loss-scale", "8", "--offload", "auto"}));
  EXPECT_EQ(moves.find("--schedule open goes with no --offload auto"), 0U) << moves;
  EXPECT_NE(moves.find("or take --schedule exact"), std::string::npos);
  EXPECT_EQ(error_of(with({"--max-grad-norm", "0", "--loss-scale", "8"})), "");
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
