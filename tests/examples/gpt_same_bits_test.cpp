// SPDX-License-Identifier: Apache-2.0
/// One small training run of the GPT example in every way it can be run: the losses, norms, loss
/// scales and state digests of every step are the same bits.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "process.hpp"
#include "text_support.hpp"

namespace gpt {
namespace {

namespace fs = std::filesystem;

struct Way {
  std::string name;
  std::vector<std::string> arguments;
  std::vector<std::string> environment = {};
};

class GptSameBits : public testing::TestWithParam<Way> {
 protected:
  static void SetUpTestSuite() {
    folder_ = fs::path(testing::TempDir()) / ("outboard_gpt_bits_" + std::to_string(getpid()));
    fs::create_directories(folder_);
    std::ofstream(folder_ / "text.txt") << text::test::made_up_text(50000, 1);
    reference_ = train({"reference", {}});
  }
  static void TearDownTestSuite() { fs::remove_all(folder_); }

  /// The bits of every step, one line each; "" and a failure if the program failed.
  static std::string train(const Way& way) {
    const std::string log = (folder_ / "log.jsonl").string();
    fs::remove(log);  // a run that goes on adds to it
    std::vector<std::string> arguments{OUTBOARD_GPT_PROGRAM,
                                       (folder_ / "text.txt").string(),
                                       "--preset",
                                       "tiny",
                                       "--layers",
                                       "3",
                                       "--width",
                                       "48",
                                       "--heads",
                                       "3",
                                       "--context",
                                       "24",
                                       "--batch",
                                       "4",
                                       "--steps",
                                       "8",
                                       "--eval-every",
                                       "3",
                                       "--eval-tokens",
                                       "480",
                                       "--device-memory",
                                       "16MiB",
                                       "--sample-tokens",
                                       "0",
                                       "--lr",
                                       "0.003",
                                       "--max-grad-norm",
                                       "0.5",
                                       "--measure-products",
                                       "off",
                                       "--digest",
                                       "--log",
                                       log};
    arguments.insert(arguments.end(), way.arguments.begin(), way.arguments.end());
    const text::test::Finished finished = text::test::run({arguments, way.environment, ""});
    EXPECT_EQ(finished.exit_code, 0) << finished.err;
    std::string bits;
    std::ifstream lines(log);
    for (std::string line; std::getline(lines, line);) {
      const auto json = nlohmann::json::parse(line);
      for (const char* key : {"loss_bits", "grad_norm_bits", "outcome", "digest"}) {
        bits += json[key].get<std::string>() + " ";
      }
      bits += json.value("held_out_bits", "-") + "\n";
    }
    return bits;
  }
  static inline fs::path folder_;
  static inline std::string reference_;
};

TEST_P(GptSameBits, AsTheReference) {
  ASSERT_EQ(std::count(reference_.begin(), reference_.end(), '\n'), 8);
  EXPECT_EQ(train(GetParam()), reference_);
}

/// Offload, gradient buffers, schedule and checkpointing, each alone and in every mixture. A ring
/// without offload is refused.
std::vector<Way> mixtures() {
  std::vector<Way> all;
  for (const bool offload : {true, false}) {
    for (const bool ring : {true, false}) {
      for (const bool exact : {true, false}) {
        for (const bool checkpointing : {true, false}) {
          if (ring && !offload) continue;
          const std::string name = std::string(offload ? "Offload" : "Resident") +
                                   (ring ? "Ring" : "Full") + (exact ? "Exact" : "Serial") +
                                   (checkpointing ? "Checkpointing" : "Keeping");
          all.push_back({name,
                         {"--offload", offload ? "on" : "off", "--grad-buffers",
                          ring ? "ring" : "full", "--schedule", exact ? "exact" : "serial",
                          "--checkpointing", checkpointing ? "on" : "off"}});
        }
      }
    }
  }
  return all;
}

std::vector<Way> ways() {
  std::vector<Way> all = mixtures();
  all.insert(
      all.end(),
      {
          {"OneThread", {"--threads", "1", "--kernel-threads", "1"}},
          {"ThreeThreads", {"--threads", "3", "--kernel-threads", "3"}},
          {"TwoNodes", {"--topology", "numa:2 core:1 pu:1"}},
          {"TinyBuckets", {"--bucket", "8KiB"}},
          {"OneBucket", {"--bucket", "16MiB"}},
          {"Scalar", {}, {"OUTBOARD_SIMD=scalar"}},
          {"VirtualOffloadOff", {"--virtual-seed", "5", "--offload", "off"}},
          {"VirtualSerial", {"--virtual-seed", "6", "--schedule", "serial"}},
          {"Blocking", {"--schedule", "blocking"}},
          {"VirtualBlocking", {"--virtual-seed", "7", "--schedule", "blocking"}},
          {"AShare", {"--offload", "0.6", "--bucket", "8KiB"}},
          {"VirtualShare", {"--virtual-seed", "7", "--offload", "0.3", "--bucket", "8KiB"}},
          {"Streamed", {"--offload", "streamed", "--bucket", "8KiB"}},
          {"VirtualStreamed", {"--virtual-seed", "9", "--offload", "streamed", "--bucket", "8KiB"}},
          {"Automatic", {"--offload", "auto", "--bucket", "8KiB"}},
          {"VirtualAutomatic", {"--virtual-seed", "8", "--offload", "auto", "--bucket", "8KiB"}},
      });
  for (const char* seed : {"1", "2", "3"}) {
    all.push_back(
        {std::string("Virtual") + seed,
         {"--virtual-seed", seed, "--bucket", "16KiB", "--topology", "numa:2 core:1 pu:1"}});
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(Ways, GptSameBits, testing::ValuesIn(ways()),
                         [](const auto& way) { return way.param.name; });

TEST_F(GptSameBits, AnotherSeedIsAnotherRun) {
  EXPECT_NE(train({"other", {"--seed", "2"}}), reference_);
}

TEST_F(GptSameBits, OfAnOpenGateAsOfTheExactOneWithoutClipping) {
  const auto fixed = [](std::vector<std::string> more) {
    std::vector<std::string> all{"--max-grad-norm", "0", "--loss-scale", "1024"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const std::string reference = train({"exact", fixed({})});
  EXPECT_NE(reference, reference_) << "clipping has no effect";
  EXPECT_EQ(train({"open", fixed({"--schedule", "open"})}), reference);
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{"--virtual-seed", "8"},
        {"--offload", "off", "--virtual-seed", "9"},
        {"--grad-buffers", "full", "--bucket", "16KiB", "--checkpointing", "off"}}) {
    std::vector<std::string> arguments = fixed({"--schedule", "open"});
    arguments.insert(arguments.end(), more.begin(), more.end());
    EXPECT_EQ(train({more[0], arguments}), reference) << more[0];
  }
  const std::vector<std::string> four{"--accumulation", "4", "--batch", "1"};
  std::vector<std::string> summed = fixed(four);
  const std::string sums = train({"sums", summed});
  summed.insert(summed.end(), {"--schedule", "open", "--virtual-seed", "3"});
  EXPECT_EQ(train({"open sums", summed}), sums);
}

TEST_F(GptSameBits, AccumulatedMicroBatchesAreTheSameInEveryWay) {
  const std::vector<std::string> four{"--accumulation", "4", "--batch", "1"};
  const std::string reference = train({"four", four});
  EXPECT_NE(reference, reference_) << "FP32 sums of FP16 micro-batches round elsewhere";
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{"--grad-buffers", "full"},
        {"--offload", "off"},
        {"--offload", "0.98", "--bucket", "8KiB"},
        {"--schedule", "serial", "--bucket", "16KiB"},
        {"--virtual-seed", "4"},
        {"--offload", "auto", "--virtual-seed", "5", "--bucket", "8KiB"}}) {
    std::vector<std::string> arguments = four;
    arguments.insert(arguments.end(), more.begin(), more.end());
    EXPECT_EQ(train({more[0], arguments}), reference) << more[0];
  }
}

/// Saved after steps 4 and 8 by one process, gone on from step 4 by another.
TEST_F(GptSameBits, OfARunThatGoesOnInAnotherProcess) {
  const std::string folder = (folder_ / "checkpoints").string();
  EXPECT_EQ(train({"saving", {"--save", folder, "--save-every", "4"}}), reference_)
      << "saving changes nothing";
  std::string rest = reference_;
  for (int step = 0; step < 4; ++step) rest.erase(0, rest.find('\n') + 1);
  const std::string saved = folder + "/save-00000001";
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{"--schedule", "exact"},
        {"--offload", "off", "--topology", "numa:2 core:1 pu:1"},
        {"--offload", "0.6", "--bucket", "8KiB"},
        {"--virtual-seed", "3", "--schedule", "serial"}}) {
    std::vector<std::string> arguments{"--resume", saved};
    arguments.insert(arguments.end(), more.begin(), more.end());
    EXPECT_EQ(train({more[1], arguments}), rest) << more[1];
  }
}

}  // namespace
}  // namespace gpt
