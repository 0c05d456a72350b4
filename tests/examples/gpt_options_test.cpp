// SPDX-License-Identifier: Apache-2.0
/// The command line: what it takes, what follows from it, and what it refuses.
#include <gtest/gtest.h>

#include <sstream>

#include "options.hpp"
#include "presets.hpp"

namespace gpt {
namespace {

using example::UsageError;

std::optional<Options> parse(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "outboard_gpt");
  std::vector<const char*> pointers;
  for (const std::string& argument : arguments) pointers.push_back(argument.c_str());
  return parse_options(static_cast<int>(pointers.size()), pointers.data());
}

std::string error_of(std::vector<std::string> arguments) {
  try {
    (void)parse(std::move(arguments));
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(GptOptions, DefaultsAreTheDemo) {
  const auto options = parse({"novels"});
  ASSERT_TRUE(options);
  const GptShape& demo = find_preset("demo")->shape;
  EXPECT_EQ(options->shape.layers, demo.layers);
  EXPECT_EQ(options->shape.width, demo.width);
  EXPECT_EQ(options->shape.vocab, 256u);
  EXPECT_TRUE(options->offload.all_on_host() && options->checkpointing && !options->loss_scale);
  EXPECT_EQ(options->schedule, outboard::Schedule::exact);
  EXPECT_EQ(options->grad_buffers, GradBuffers::ring);
  EXPECT_EQ(options->warmup, options->steps / 20);
  EXPECT_DOUBLE_EQ(options->min_lr, 0.1 * options->lr);
}

TEST(GptOptions, FlagsGoBeforeThePreset) {
  const auto options = parse({"d", "--preset", "124m", "--layers", "3", "--tokens", "uint16",
                              "--context", "64", "--batch", "2"});
  ASSERT_TRUE(options);
  EXPECT_EQ(options->shape.layers, 3u);
  EXPECT_EQ(options->shape.width, 768u);
  EXPECT_EQ(options->shape.context, 64u);
  EXPECT_EQ(options->shape.batch, 2u);
  EXPECT_EQ(options->shape.vocab, 50257u);
}

TEST(GptOptions, WithoutOffloadGradientsStayInFullBuffers) {
  EXPECT_EQ(parse({"d", "--offload", "off"})->grad_buffers, GradBuffers::full);
  const std::string error = error_of({"d", "--offload", "off", "--grad-buffers", "ring"});
  EXPECT_NE(error.find("--grad-buffers ring needs --offload on or"), std::string::npos) << error;
  EXPECT_EQ(parse({"d", "--offload", "0.7"})->grad_buffers, GradBuffers::full);
  EXPECT_EQ(parse({"d", "--offload", "auto"})->grad_buffers, GradBuffers::full);
}

TEST(GptOptions, OffloadIsAllOrNothingAShareOrTheEnginesChoice) {
  const auto share = parse({"d", "--offload", "0.75"});
  outboard::Config config;
  example::place_state(share->offload, config);
  EXPECT_EQ(config.placement, outboard::Placement::fraction);
  EXPECT_EQ(config.device_fraction, 0.25);
  EXPECT_EQ(example::spell_offload(share->offload), "0.75");
  const auto choice = parse({"d", "--offload", "0.5", "--offload", "auto"});
  example::place_state(choice->offload, config);
  EXPECT_EQ(config.placement, outboard::Placement::automatic);
  EXPECT_EQ(config.device_fraction, 0.0);
  EXPECT_EQ(example::spell_offload(choice->offload), "auto");
}

TEST(GptOptions, TheEchoedCommandLineGivesTheSameOptions) {
  const std::vector<std::vector<std::string>> lines{
      {"novels", "more"},
      {"a file", "--offload", "off", "--digest", "--virtual-seed", "7", "--topology",
       "numa:2 core:1 pu:1", "--prompt", "It's \"x\" $HOME"},
      {"d", "--offload", "0.3"},
      {"d", "--offload", "auto"},
      {"t.bin", "--tokens",       "uint16",    "--vocab",        "1000",   "--preset",
       "tiny",  "--lr",           "0.00031",   "--min-lr",       "0",      "--warmup",
       "3",     "--steps",        "9",         "--schedule",     "serial", "--checkpointing",
       "off",   "--grad-buffers", "full",      "--accumulation", "4",      "--bucket",
       "64KiB", "--log",          "x y.jsonl", "--host-memory",  "1GiB",   "--fit"},
  };
  for (const auto& line : lines) {
    const std::string echoed = command_line(*parse(line));
    // Undo the shell's quoting.
    std::vector<std::string> words(1);
    bool quoted = false;
    for (std::size_t i = 0; i < echoed.size(); ++i) {
      if (echoed[i] == '\'') {
        quoted = !quoted;
      } else if (echoed[i] == '\\' && !quoted) {
        words.back() += echoed[++i];
      } else if (echoed[i] == ' ' && !quoted) {
        words.emplace_back();
      } else {
        words.back() += echoed[i];
      }
    }
    EXPECT_FALSE(quoted);
    words.erase(words.begin());
    const auto again = parse(words);
    ASSERT_TRUE(again) << echoed;
    EXPECT_EQ(command_line(*again), echoed);
    EXPECT_EQ(again->data, parse(line)->data);
    EXPECT_EQ(again->prompt, parse(line)->prompt);
    EXPECT_EQ(again->lr, parse(line)->lr);
    EXPECT_EQ(again->topology, parse(line)->topology);
  }
}

TEST(GptOptions, SaysInOneLineWhatIsWrong) {
  const std::vector<std::pair<std::vector<std::string>, const char*>> cases{
      {{}, "--data is missing: name files"},
      {{""}, "--data has an empty name"},
      {{"a", "--nonsense"}, "--nonsense"},
      {{"a", "--lr"}, "--lr"},
      {{"a", "--offload", "maybe"},
       "--offload is \"maybe\"; it must be on or off, streamed, auto, or a"},
      {{"a", "--offload", "1.5"},
       "--offload is \"1.5\"; it must be on or off, streamed, auto, or a share"},
      {{"a", "--tokens", "words"}, "--tokens is \"words\"; it must be bytes or uint16"},
      {{"a", "--preset", "huge"}, "--preset is \"huge\"; it must be one of tiny, demo"},
      {{"a", "--width", "64", "--heads", "3"}, "--heads is 3 and --width 64"},
      {{"a", "--heads", "500"}, "--heads is 500; it must be from 1 to 192"},
      {{"a", "--width", "8192", "--heads", "1"},
       "--context is 128 and a head 8192 wide, together 1048576 of at most 262144; raise --heads"},
      {{"a", "--layers", "0"}, "--layers is 0; it must be from 1 to 1024"},
      {{"a", "--width", "0"}, "--width is 0; it must be from 1 to 8192"},
      {{"a", "--heads", "0"}, "--heads is 0"},
      {{"a", "--context", "0"}, "--context is 0; it must be from 2 to 4096"},
      {{"a", "--context", "5000"}, "--context is 5000; it must be from 2 to 4096"},
      {{"a", "--batch", "0"}, "--batch is 0"},
      {{"a", "--batch", "9000"}, "--batch is 9000; it must be from 1 to 8192"},
      {{"a", "--batch", "x"}, "--batch is \"x\"; it must be a whole number"},
      {{"a", "--steps", "0"}, "--steps is 0; it must be from 1 to 1000000000"},
      {{"a", "--steps", "-5"}, "--steps is \"-5\"; it must be a whole number from 1"},
      {{"a", "--steps", "1.5"}, "--steps is \"1.5\""},
      {{"a", "--seed", "-1"}, "--seed is \"-1\""},
      {{"a", "--eval-every", "-1"}, "--eval-every is \"-1\""},
      {{"a", "--print-every", "0"}, "--print-every is 0"},
      {{"a", "--eval-tokens", "0"}, "--eval-tokens is 0"},
      {{"a", "--virtual-seed", "-1"}, "--virtual-seed is \"-1\""},
      {{"a", "--accumulation", "0"}, "--accumulation is 0"},
      {{"a", "--threads", "100000"}, "--threads is 100000; it must be from 0 to 1024"},
      {{"a", "--kernel-threads", "-2"}, "--kernel-threads is \"-2\""},
      {{"a", "--vocab", "300"}, "--vocab is 300, but bytes are 256"},
      {{"a", "--tokens", "uint16", "--vocab", "70000"}, "--vocab is 70000"},
      {{"a", "--lr", "nan"}, "--lr is \"nan\"; it must be a finite number of at least 0"},
      {{"a", "--lr", "-1"}, "--lr is \"-1\""},
      {{"a", "--min-lr", "-1"}, "--min-lr is \"-1\""},
      {{"a", "--weight-decay", "-0.1"}, "--weight-decay is \"-0.1\""},
      {{"a", "--max-grad-norm", "inf"}, "--max-grad-norm is \"inf\""},
      {{"a", "--temperature", "0"}, "--temperature is \"0\"; it must be a finite number above 0"},
      {{"a", "--warmup", "20", "--steps", "10"}, "--warmup is 20; it must be from 0 to 10"},
      {{"a", "--device-memory", "12MB"}, "--device-memory is \"12MB\"; write a whole number"},
      {{"a", "--device-memory", "0"}, "--device-memory is 0B; it must be from 4KiB"},
      {{"a", "--bucket", "12"}, "--bucket is 12B; it must be from 8KiB to 1GiB"},
      {{"a", "--tokens", "uint16", "--prompt", "x"}, "--prompt is text"},
  };
  for (const auto& [arguments, part] : cases) {
    const std::string error = error_of(arguments);
    EXPECT_NE(error.find(part), std::string::npos) << error << " / " << part;
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  }
}

/// Each names both options and what to do, before anything is made.
TEST(GptOptions, RefusesWhatAnOpenScheduleCannotDo) {
  const std::vector<std::string> open{"novels", "--schedule", "open"};
  const auto with = [&open](std::vector<std::string> more) {
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

TEST(GptOptions, HelpHasExamples) {
  testing::internal::CaptureStdout();
  EXPECT_FALSE(parse({"--help"}));
  const std::string help = testing::internal::GetCapturedStdout();
  for (const char* part : {"Examples:", "outboard_gpt novels/", "--fit", "--grad-buffers", "13b",
                           "training steps (default: 1400)", "exact|blocking|open|serial"}) {
    EXPECT_NE(help.find(part), std::string::npos) << part;
  }
}

TEST(Presets, GrowAndTheirHeadsDivideTheirWidth) {
  std::size_t before = 0;
  for (const Preset& preset : presets()) {
    EXPECT_EQ(preset.shape.width % preset.shape.heads, 0u) << preset.name;
    const std::size_t size = preset.shape.layers * preset.shape.width * preset.shape.width;
    EXPECT_GT(size, before) << preset.name;
    before = size;
    EXPECT_EQ(find_preset(preset.name), &preset);
  }
  EXPECT_EQ(find_preset("none"), nullptr);
}

}  // namespace
}  // namespace gpt
