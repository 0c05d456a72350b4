// SPDX-License-Identifier: Apache-2.0
/// The GPT example as its users run it: what it prints, how it fails, how it stops.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "outboard/outboard.hpp"
#include "process.hpp"
#include "text_support.hpp"

namespace gpt {
namespace {

namespace fs = std::filesystem;
using text::test::Finished;

class GptPrograms : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / ("outboard_gpt_" + std::to_string(getpid()));
    fs::create_directories(folder_);
    write("text.txt", text::test::made_up_text(60000, 1));
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string write(const std::string& name, std::string_view content) {
    const fs::path path = folder_ / name;
    std::ofstream(path, std::ios::binary) << content;
    return path.string();
  }
  [[nodiscard]] std::string path(const std::string& name) const {
    return (folder_ / name).string();
  }
  static Finished run(std::vector<std::string> arguments, std::string interrupt = "") {
    arguments.insert(arguments.begin(), OUTBOARD_GPT_PROGRAM);
    return text::test::run({std::move(arguments), {}, std::move(interrupt)});
  }
  /// A tiny model on the made-up text; `more` comes last.
  [[nodiscard]] Finished train(const std::vector<std::string>& more,
                               std::string interrupt = "") const {
    std::vector<std::string> arguments{path("text.txt"),
                                       "--preset",
                                       "tiny",
                                       "--width",
                                       "32",
                                       "--context",
                                       "32",
                                       "--batch",
                                       "4",
                                       "--eval-tokens",
                                       "1024",
                                       "--device-memory",
                                       "1MiB",
                                       "--sample-tokens",
                                       "20",
                                       "--kernel-threads",
                                       "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments, std::move(interrupt));
  }
  static bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  }
  /// One line on standard error that has all the parts, and an exit code that is not 0.
  static void expect_refused(const Finished& finished, const std::vector<std::string>& parts) {
    EXPECT_TRUE(finished.exit_code >= 1 && finished.exit_code <= 3) << finished.exit_code;
    EXPECT_EQ(std::count(finished.err.begin(), finished.err.end(), '\n'), 1) << finished.err;
    EXPECT_EQ(finished.err.rfind("outboard_gpt: ", 0), 0u) << finished.err;
    for (const std::string& part : parts) EXPECT_TRUE(has(finished.err, part)) << finished.err;
  }
  fs::path folder_;
};

TEST_F(GptPrograms, LearnsAndSaysWhatItDid) {
  const Finished finished =
      train({"--steps", "60", "--lr", "0.005", "--eval-every", "20", "--log", path("log.jsonl")});
  ASSERT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_EQ(finished.err, "");
  for (const char* part :
       {"outboard_gpt --data", "model states, 16 bytes per parameter", "weights, FP16",
        "host: FP32 weights", "activation budget", "engine memory", "held out:", "order-2",
        "where a step's time goes", "device memory: peak", "state digest:", "sample, after:"}) {
    EXPECT_TRUE(has(finished.out, part)) << part << "\n" << finished.out;
  }
  EXPECT_FALSE(has(finished.out, "\x1b")) << "no control characters off a terminal";
  std::ifstream log(path("log.jsonl"));
  std::vector<nlohmann::json> steps;
  for (std::string line; std::getline(log, line);) steps.push_back(nlohmann::json::parse(line));
  ASSERT_EQ(steps.size(), 60u);
  EXPECT_NEAR(steps[0]["loss"].get<double>(), std::log(256.0), 0.5);
  EXPECT_LT(steps[59]["held_out"].get<double>(), steps[19]["held_out"].get<double>());
  EXPECT_LT(steps[59]["held_out"].get<double>(), 3.0);
  for (const auto& step : steps) {
    double sum = 0.0;
    for (const auto& part : step["split_ms"]) sum += part.get<double>();
    EXPECT_NEAR(sum, step["ms"].get<double>(), 1e-9 * sum) << "the parts are the whole";
    EXPECT_EQ(step["steps_applied"].get<int>() + step["steps_skipped"].get<int>(), step["step"]);
    EXPECT_EQ(step.contains("products"), step["step"] == 60) << "measured once, at the end";
  }
  EXPECT_GT(steps[59]["products"]["share"].get<double>(), 0.0);
  EXPECT_TRUE(has(finished.out, "the matrix products alone would allow")) << finished.out;
}

TEST_F(GptPrograms, OutputThatCannotBeWrittenIsAFailure) {
  ASSERT_TRUE(fs::is_character_file("/dev/full")) << "the device that is always full";
  const std::string program = OUTBOARD_GPT_PROGRAM;
  expect_refused(text::test::run({{"/bin/sh", "-c", "'" + program + "' --fit >/dev/full"}, {}, ""}),
                 {"cannot write to standard output"});
}

// The gradients of a single row of two positions overflow FP16 at first.
TEST_F(GptPrograms, ASkippedStepLeavesTheLearningRateWhereItIs) {
  const Finished finished =
      train({"--context", "2", "--batch", "1", "--steps", "30", "--lr", "0.03", "--warmup", "20",
             "--eval-every", "0", "--measure-products", "off", "--seed", "3", "--log",
             path("skips.jsonl")});
  ASSERT_EQ(finished.exit_code, 0) << finished.err;
  std::ifstream log(path("skips.jsonl"));
  int applied = 0, skipped = 0;
  for (std::string line; std::getline(log, line);) {
    const auto step = nlohmann::json::parse(line);
    if (applied < 20) {
      EXPECT_DOUBLE_EQ(step["lr"].get<double>(), 0.03 * (applied + 1) / 20.0) << line;
    }
    (step["outcome"] == "applied" ? applied : skipped) += 1;
  }
  EXPECT_EQ(applied + skipped, 30);
  EXPECT_GT(skipped, 0) << "nothing was tried";
}

TEST_F(GptPrograms, LeavesTheMatrixProductsUnmeasuredWhenAskedTo) {
  for (const std::vector<std::string>& off :
       {std::vector<std::string>{"--measure-products", "off"}, {"--virtual-seed", "1"}}) {
    std::vector<std::string> arguments{"--steps", "1"};
    arguments.insert(arguments.end(), off.begin(), off.end());
    const Finished finished = train(arguments);
    EXPECT_EQ(finished.exit_code, 0) << finished.err;
    EXPECT_TRUE(has(finished.out, "tokens per second"));
    EXPECT_FALSE(has(finished.out, "matrix products alone")) << finished.out;
  }
}

TEST_F(GptPrograms, InterruptEndsAfterTheStepWithTheSummaryAndTheSample) {
  const Finished finished = train({"--steps", "1000000", "--print-every", "1"}, "\n      3 ");
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_EQ(finished.err, "");
  std::size_t at = 0;
  for (const char* part : {"held out:", "stopped by a signal", "where a step's time goes",
                           "state digest:", "sample, after:"}) {
    const std::size_t found = finished.out.find(part, at);
    ASSERT_NE(found, std::string::npos) << part << "\n" << finished.out;
    at = found;
  }
  EXPECT_GT(finished.out.size(), finished.out.find("sample, after:") + 20) << "it wrote something";
}

TEST_F(GptPrograms, WritesAfterAPrompt) {
  const Finished finished = train({"--steps", "1", "--prompt", "the engine"});
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_TRUE(has(finished.out, "sample, after: the engine\n")) << finished.out;
}

TEST_F(GptPrograms, TrainsOnNumbers) {
  std::string numbers;
  for (std::size_t i = 0; i < 50000; ++i) {
    numbers += static_cast<char>(i * i % 251);
    numbers += static_cast<char>(i % 2);
  }
  const std::string file = write("train.bin", numbers);
  const Finished finished = run({file, "--tokens", "uint16", "--vocab", "512", "--preset", "tiny",
                                 "--steps", "3", "--sample-tokens", "5", "--eval-tokens", "512"});
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_TRUE(has(finished.out, "nats/token")) << finished.out;
}

TEST_F(GptPrograms, ADeviceThatIsTooSmallIsRefusedWithTheDifference) {
  const std::vector<std::string> small{"--steps", "1", "--device-memory", "480KiB"};
  EXPECT_EQ(train(small).exit_code, 0) << train(small).err;
  for (const char* flag : {"--offload", "--checkpointing"}) {
    std::vector<std::string> larger = small;
    larger.insert(larger.end(), {flag, "off"});
    expect_refused(train(larger), {"--device-memory is 0.47 MiB", "MiB too little",
                                   "--checkpointing on it needs"});
  }
  expect_refused(train({"--device-memory", "64KiB"}),
                 {"--device-memory is 0.06 MiB", "too little"});
}

TEST_F(GptPrograms, BadDataIsNamed) {
  expect_refused(run({path("none")}), {"none does not exist; pass files or folders"});
  expect_refused(run({write("empty.txt", "")}), {"empty.txt is empty; pass a file with text"});
  expect_refused(run({write("short.txt", "hello")}), {"5 bytes", "40960", "pass more data"});
  expect_refused(run({write("binary", std::string("\0\xFF", 2))}),
                 {"binary is not UTF-8 text; convert it"});
  fs::create_directories(folder_ / "bare");
  expect_refused(run({path("bare")}), {"0 files read, 0 passed over", "pass files or folders"});
  expect_refused(
      run({write("almost.txt", text::test::made_up_text(40965, 1)), "--context", "4096"}),
      {"40965 bytes", "a context of 4096 needs 40970", "lower --context"});
  expect_refused(run({write("odd.bin", "abc"), "--tokens", "uint16"}),
                 {"odd.bin has 3 bytes, an odd number", "leave out --tokens uint16"});
  expect_refused(
      run({write("big.bin", "\1\1\2\2"), "--tokens", "uint16", "--vocab", "514"}),
      {"big.bin has token 514 at position 1", "the vocabulary has 514", "raise --vocab"});
}

TEST_F(GptPrograms, ABadCommandLineIsNamedOnStandardErrorOnly) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases{
      {{}, "--data is missing"},
      {{path("text.txt"), "--nonsense"}, "--nonsense"},
      {{path("text.txt"), "--preset", "huge"}, "--preset is \"huge\"; it must be one of tiny"},
      {{path("text.txt"), "--steps", "-5"}, "--steps is \"-5\"; it must be a whole number from 1"},
      {{path("text.txt"), "--layers", "0"}, "--layers is 0; it must be from 1 to 1024"},
      {{path("text.txt"), "--width", "100", "--heads", "3"}, "a multiple of the heads"},
      {{path("text.txt"), "--device-memory", "12MB"}, "--device-memory is \"12MB\""},
  };
  for (const auto& [arguments, part] : cases) {
    const Finished finished = run(arguments);
    expect_refused(finished, {part, "see --help"});
    EXPECT_EQ(finished.exit_code, 2) << part;
    EXPECT_EQ(finished.out, "") << part;
  }
}

TEST_F(GptPrograms, ALogThatCannotBeWrittenIsNamedWithTheReason) {
  expect_refused(train({"--log", path("no/such/folder")}),
                 {"cannot write --log " + path("no/such/folder") + ": No such file or directory"});
  expect_refused(train({"--log", folder_.string()}), {"Is a directory; name a file"});
  ASSERT_TRUE(fs::is_character_file("/dev/full")) << "the device that is always full";
  expect_refused(train({"--steps", "1", "--log", "/dev/full"}),
                 {"bytes to --log /dev/full: No space left on device"});
}

TEST_F(GptPrograms, AModelLargerThanTheMachineIsRefusedBeforeItTakesMemory) {
  const Finished finished =
      run({path("text.txt"), "--preset", "30b", "--device-memory", "100GiB", "--layers", "1024"});
  expect_refused(finished, {"GiB of host memory", "for the software GPU, and this machine has",
                            "choose a smaller --preset"});
  EXPECT_EQ(finished.exit_code, 3);
}

TEST_F(GptPrograms, ADivergedLossEndsTheRunWithItsNumbers) {
  const Finished finished = train({"--steps", "3000", "--lr", "100", "--min-lr", "100", "--warmup",
                                   "0", "--max-grad-norm", "0"});
  EXPECT_EQ(finished.exit_code, 1);
  // The engine may have reported a skipped step before; of the program's own there is one line.
  std::istringstream lines(finished.err);
  std::vector<std::string> own;
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("outboard_gpt: ", 0) == 0) own.push_back(line);
  }
  ASSERT_EQ(own.size(), 1u) << finished.err;
  const std::string start = "outboard_gpt: training diverged: the loss is ";
  ASSERT_EQ(own[0].rfind(start, 0), 0u) << own[0];
  std::istringstream rest(own[0].substr(start.size()));
  std::string loss, at, step_word;
  std::uint64_t step = 0;
  rest >> loss >> at >> step_word >> step;
  ASSERT_TRUE(rest && at == "at" && step_word == "step" && step > 0) << own[0];
  EXPECT_TRUE(has(own[0], ", learning rate 100, ") && has(own[0], "lower --lr")) << own[0];
  EXPECT_TRUE(!std::isfinite(std::stod(loss)) || std::stod(loss) > std::log(256.0)) << loss;
  EXPECT_FALSE(has(finished.out, "sample, after:")) << "nothing is written by a broken model";
}

TEST_F(GptPrograms, FitNamesTheLargestPreset) {
  const Finished finished = run({"--fit", "--device-memory", "24GiB", "--host-memory", "64GiB",
                                 "--tokens", "uint16", "--batch", "1"});
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_TRUE(has(finished.out, "largest that fits: 2.7b")) << finished.out;
  expect_refused(run({"--fit", "--device-memory", "4KiB"}),
                 {"no preset fits; raise --device-memory"});
}

TEST_F(GptPrograms, SavesWhenASignalStopsItAndGoesOn) {
  const std::vector<std::string> endless{"--steps", "1000000",   "--print-every",      "1",
                                         "--save",  path("run"), "--measure-products", "off"};
  const Finished stopped = train(endless, "\n      3 ");
  EXPECT_EQ(stopped.exit_code, 0) << stopped.err;
  const std::string mark = "save-00000001' after step ";
  const std::size_t at = stopped.out.find(mark);
  ASSERT_NE(at, std::string::npos) << stopped.out;
  const std::size_t begin = at + mark.size();
  const std::string step = stopped.out.substr(begin, stopped.out.find(',', begin) - begin);
  std::vector<std::string> more = endless;
  more.insert(more.end(), {"--resume", path("run")});
  const Finished again = train(more, "going on from");
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_TRUE(
      has(again.out, "going on from '" + path("run") + "/save-00000001', after step " + step))
      << again.out;
  EXPECT_TRUE(has(again.out, "save-00000002' after step ")) << again.out;
}

TEST_F(GptPrograms, AddsToTheLogOfTheRunThatItGoesOnFrom) {
  const auto lines = [&] {
    std::ifstream log(path("log.jsonl"));
    return std::count(std::istreambuf_iterator<char>(log), {}, '\n');
  };
  ASSERT_EQ(train({"--steps", "2", "--save", path("run"), "--log", path("log.jsonl")}).exit_code,
            0);
  const auto first = lines();
  EXPECT_GE(first, 2);
  const Finished more =
      train({"--steps", "4", "--resume", path("run"), "--log", path("log.jsonl")});
  ASSERT_EQ(more.exit_code, 0) << more.err;
  EXPECT_EQ(lines(), 2 * first);
}

TEST_F(GptPrograms, RefusesToGoOnFromAnotherRun) {
  const std::vector<std::string> first{"--steps", "2", "--save", path("run")};
  ASSERT_EQ(train(first).exit_code, 0);
  const auto resume = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"--resume", path("run")});
    return train(more);
  };
  expect_refused(resume({"--steps", "3", "--seed", "2"}), {"of another run", "seed 1", "seed 2"});
  expect_refused(resume({"--steps", "2"}), {"after step 2", "raise --steps"});
  expect_refused(resume({"--steps", "3", "--width", "16"}), {"elements and the checkpoint has"});
  expect_refused(train({"--resume", path("nowhere")}), {"nowhere", "No such file"});
  std::string other = text::test::made_up_text(60000, 1);
  std::swap(other[20'000], other[20'001]);
  write("text.txt", other);
  expect_refused(resume({"--steps", "3"}), {"of another run", "60000 tokens ("});
  expect_refused(train({"--save-every", "5"}), {"--save-every needs --save"});
}

TEST_F(GptPrograms, BeginsWithImportedWeights) {
  ASSERT_EQ(train({"--steps", "2", "--save", path("run")}).exit_code, 0);
  const auto begin_with = [&](outboard::WeightsFile file, const std::string& name) {
    outboard::export_weights(path("run"), path(name), {.file = file});
    outboard::import_weights(path(name), path(name + " imported"),
                             {.file = file, .dtype = outboard::DType::f16});
    const Finished run = train({"--steps", "2", "--resume", path(name + " imported"), "--log",
                                path(name + ".jsonl"), "--digest"});
    EXPECT_EQ(run.exit_code, 0) << run.err;
    EXPECT_TRUE(has(run.out, "save-00000001', after step 0")) << run.out;
    const std::size_t digest = run.out.find("state digest: ");
    return run.out.substr(digest, run.out.find('\n', digest) - digest);
  };
  const std::string one = begin_with(outboard::WeightsFile::llmc, "gpt2.bin");
  EXPECT_EQ(one, begin_with(outboard::WeightsFile::safetensors, "hf"));
  EXPECT_TRUE(has(one, "state digest: ")) << one;
  expect_refused(train({"--steps", "2", "--resume", path("gpt2.bin imported"), "--heads", "1"}),
                 {"heads and this run's model 1"});
}

TEST_F(GptPrograms, SavesBesideTrainingWhatItSavesWaiting) {
  for (const std::string beside : {"on", "off"}) {
    const Finished run = train({"--steps", "5", "--save", path(beside), "--save-every", "2",
                                "--keep", "0", "--save-beside", beside});
    ASSERT_EQ(run.exit_code, 0) << run.err;
    for (const char* step : {"1' after step 2", "2' after step 4", "3' after step 5"}) {
      EXPECT_TRUE(has(run.out, std::string("save-0000000") + step)) << run.out;
    }
  }
  const auto on = outboard::list_checkpoints(path("on"));
  const auto off = outboard::list_checkpoints(path("off"));
  ASSERT_EQ(on.size(), 3U);
  ASSERT_EQ(off.size(), 3U);
  for (std::size_t i = 0; i < on.size(); ++i) {
    outboard::verify_checkpoint(on[i]);
    EXPECT_EQ(outboard::inspect_checkpoint(on[i]).digest,
              outboard::inspect_checkpoint(off[i]).digest);
  }
}

TEST_F(GptPrograms, KeepsAsManyCheckpointsAsAskedAndLogsTheirDigests) {
  const std::vector<std::string> words{
      "--steps", "4", "--save", path("run"), "--save-every",  "1",  "--log", path("log.jsonl"),
      "--keep",  "0", "--seed", "3",         "--save-beside", "off"};
  ASSERT_EQ(train(words).exit_code, 0);
  const auto all = outboard::list_checkpoints(path("run"));
  ASSERT_EQ(all.size(), 4U);
  std::ifstream log(path("log.jsonl"));
  std::size_t step = 0;
  for (std::string line; std::getline(log, line); ++step) {
    char digest[17] = {};
    std::snprintf(digest, sizeof(digest), "%016" PRIx64,
                  outboard::inspect_checkpoint(all.at(step)).digest);
    EXPECT_TRUE(has(line, std::string("\"digest\":\"") + digest)) << line;
  }
  EXPECT_EQ(step, 4U);
}

}  // namespace
}  // namespace gpt
