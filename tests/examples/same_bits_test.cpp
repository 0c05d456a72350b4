// SPDX-License-Identifier: Apache-2.0
/// One small training run in every way the program can run it: the losses, norms, loss scales and
/// state digests of every step are the same bits.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "process.hpp"
#include "text_support.hpp"

namespace text {
namespace {

namespace fs = std::filesystem;

struct Way {
  std::string name;
  std::vector<std::string> arguments;
  std::vector<std::string> environment;
  std::string needs;  ///< a flag of /proc/cpuinfo
};

class SameBits : public testing::TestWithParam<Way> {
 protected:
  static void SetUpTestSuite() {
    folder_ = fs::path(testing::TempDir()) / ("outboard_same_bits_" + std::to_string(getpid()));
    fs::create_directories(folder_);
    std::ofstream(folder_ / "text.txt") << test::made_up_text(50000, 1);
    reference_ = train({"reference", {}, {}, ""});
  }
  static void TearDownTestSuite() { fs::remove_all(folder_); }

  /// The bits of every step, one line each; "" and a failure if the program failed.
  static std::string train(const Way& way) {
    const std::string log = (folder_ / "log.jsonl").string();
    std::vector<std::string> arguments{OUTBOARD_TEXT_PROGRAM,
                                       "--data",
                                       (folder_ / "text.txt").string(),
                                       "--width",
                                       "160",
                                       "--embed",
                                       "8",
                                       "--batch",
                                       "32",
                                       "--steps",
                                       "12",
                                       "--eval-every",
                                       "4",
                                       "--eval-bytes",
                                       "500",
                                       "--device-memory",
                                       "8MiB",
                                       "--sample-bytes",
                                       "0",
                                       "--lr",
                                       "0.003",
                                       "--max-grad-norm",
                                       "0.5",
                                       "--digest",
                                       "--log",
                                       log};
    arguments.insert(arguments.end(), way.arguments.begin(), way.arguments.end());
    const test::Finished finished = test::run({arguments, way.environment, ""});
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

bool cpu_has(const std::string& flag) {
  std::ifstream info("/proc/cpuinfo");
  for (std::string word; info >> word;) {
    if (word == flag) return true;
  }
  return false;
}

TEST_P(SameBits, AsTheReference) {
  if (!GetParam().needs.empty() && !cpu_has(GetParam().needs)) {
    GTEST_SKIP() << "this CPU has no " << GetParam().needs;
  }
  ASSERT_EQ(std::count(reference_.begin(), reference_.end(), '\n'), 12);
  EXPECT_EQ(train(GetParam()), reference_);
}

std::vector<Way> ways() {
  std::vector<Way> all{
      {"Again", {}, {}, ""},
      {"OffloadOff", {"--offload", "off"}, {}, ""},
      {"OffloadOffSerial", {"--offload", "off", "--schedule", "serial"}, {}, ""},
      {"Serial", {"--schedule", "serial"}, {}, ""},
      {"OneThread", {"--threads", "1"}, {}, ""},
      {"TwoThreads", {"--threads", "2"}, {}, ""},
      {"TwoNodes", {"--topology", "numa:2 core:1 pu:1"}, {}, ""},
      {"ThreeNodesTwoThreads", {"--topology", "numa:3 core:2 pu:1", "--threads", "2"}, {}, ""},
      {"SmallBuckets", {"--bucket", "64KiB"}, {}, ""},
      {"TinyBuckets", {"--bucket", "8KiB"}, {}, ""},
      {"LargeBuckets", {"--bucket", "1MiB"}, {}, ""},
      {"OneBucket", {"--bucket", "16MiB"}, {}, ""},
      {"Scalar", {}, {"OUTBOARD_SIMD=scalar"}, ""},
      {"Avx2", {}, {"OUTBOARD_SIMD=avx2"}, "avx2"},
      {"Avx512", {}, {"OUTBOARD_SIMD=avx512"}, "avx512bw"},
      {"VirtualOff", {"--virtual-seed", "5", "--offload", "off"}, {}, ""},
      {"VirtualSerial", {"--virtual-seed", "6", "--schedule", "serial"}, {}, ""},
      {"Blocking", {"--schedule", "blocking"}, {}, ""},
  };
  for (const char* seed : {"1", "2", "3", "4"}) {
    all.push_back(
        {std::string("Virtual") + seed,
         {"--virtual-seed", seed, "--bucket", "16KiB", "--topology", "numa:2 core:1 pu:1"},
         {},
         ""});
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(Ways, SameBits, testing::ValuesIn(ways()),
                         [](const auto& way) { return way.param.name; });

TEST_F(SameBits, AnotherSeedIsAnotherRun) {
  EXPECT_NE(train({"other", {"--seed", "2"}, {}, ""}), reference_);
}

}  // namespace
}  // namespace text
