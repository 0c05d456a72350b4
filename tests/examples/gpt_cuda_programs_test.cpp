// SPDX-License-Identifier: Apache-2.0
/// The GPT example on the stand-in for NVIDIA's driver and cuBLASLt, as its users run it.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "process.hpp"
#include "text_support.hpp"

namespace gpt {
namespace {

namespace fs = std::filesystem;
using text::test::Finished;

class GptCudaPrograms : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / ("outboard_gpt_cuda_" + std::to_string(getpid()));
    fs::create_directories(folder_);
    std::ofstream(folder_ / "text.txt") << text::test::made_up_text(60000, 1);
  }
  void TearDown() override { fs::remove_all(folder_); }

  [[nodiscard]] Finished run(const std::vector<std::string>& more, bool stand_in = true) const {
    std::vector<std::string> arguments{OUTBOARD_GPT_PROGRAM,
                                       (folder_ / "text.txt").string(),
                                       "--preset",
                                       "tiny",
                                       "--layers",
                                       "2",
                                       "--width",
                                       "32",
                                       "--heads",
                                       "2",
                                       "--context",
                                       "32",
                                       "--batch",
                                       "4",
                                       "--steps",
                                       "40",
                                       "--eval-tokens",
                                       "512",
                                       "--sample-tokens",
                                       "8"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    std::vector<std::string> environment;
    if (stand_in) {
      environment = {"LD_LIBRARY_PATH=" OUTBOARD_STAND_INS, "OUTBOARD_FAKE_CUDA_MEMORY=268435456"};
    }
    return text::test::run({arguments, environment, {}});
  }
  /// Each step's loss as the log has it.
  [[nodiscard]] std::vector<double> losses(const std::vector<std::string>& more) const {
    const std::string log = (folder_ / "log.jsonl").string();
    std::vector<std::string> arguments{"--log", log, "--digest"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Finished finished = run(arguments);
    EXPECT_EQ(finished.exit_code, 0) << finished.err << finished.out;
    std::vector<double> all;
    std::ifstream lines(log);
    for (std::string line; std::getline(lines, line);) {
      all.push_back(nlohmann::json::parse(line).at("loss").get<double>());
    }
    return all;
  }
  fs::path folder_;
};

/// Products of FP16 numbers in another order: the runs part slowly.
TEST_F(GptCudaPrograms, TrainsAsOnTheSoftwareGpu) {
  const std::vector<double> cuda = losses({"--device", "cuda"});
  const std::vector<double> sim = losses({"--device", "sim", "--device-memory", "4MiB"});
  ASSERT_EQ(cuda.size(), 40u);
  ASSERT_EQ(sim.size(), 40u);
  for (std::size_t i = 0; i < cuda.size(); ++i) EXPECT_NEAR(cuda[i], sim[i], 0.02) << i;
  EXPECT_LT(cuda.back(), cuda.front() - 1.0);
}

/// The engine's promise, with its own kernels on the device and without.
TEST_F(GptCudaPrograms, WaysToRunChangeNoBit) {
  const std::vector<double> plain = losses({"--device", "cuda", "--steps", "10"});
  for (const std::vector<std::string>& way : {std::vector<std::string>{"--offload", "off"},
                                              {"--offload", "streamed"},
                                              {"--checkpointing", "off"},
                                              {"--grad-buffers", "full"},
                                              {"--schedule", "serial"}}) {
    std::vector<std::string> arguments{"--device", "cuda", "--steps", "10"};
    arguments.insert(arguments.end(), way.begin(), way.end());
    EXPECT_EQ(losses(arguments), plain) << way[0] << " " << way[1];
  }
}

TEST_F(GptCudaPrograms, SaysWhatIsMissing) {
  const Finished seed = run({"--device", "cuda", "--virtual-seed", "1"});
  EXPECT_NE(seed.exit_code, 0);
  EXPECT_NE(seed.err.find("--virtual-seed"), std::string::npos) << seed.err;
  const Finished device = run({"--device", "gpu"});
  EXPECT_NE(device.exit_code, 0);
  EXPECT_NE(device.err.find("cuda"), std::string::npos) << device.err;
}

}  // namespace
}  // namespace gpt
