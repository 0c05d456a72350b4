// SPDX-License-Identifier: Apache-2.0
/// The example programs as their users run them: what they print, how they fail, how they stop.
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
using test::Finished;

class Programs : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / ("outboard_programs_" + std::to_string(getpid()));
    fs::create_directories(folder_);
    write("text.txt", test::made_up_text(60000, 1));
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
  /// A small model on the made-up text; `more` comes last.
  [[nodiscard]] Finished text(std::vector<std::string> more, std::string interrupt = "") const {
    std::vector<std::string> arguments{OUTBOARD_TEXT_PROGRAM,
                                       "--data",
                                       path("text.txt"),
                                       "--width",
                                       "64",
                                       "--embed",
                                       "8",
                                       "--batch",
                                       "64",
                                       "--eval-bytes",
                                       "2000",
                                       "--device-memory",
                                       "1MiB"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return test::run({arguments, {}, std::move(interrupt)});
  }
  static bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  }
  static bool one_line(const std::string& text) {
    return !text.empty() && text.find('\n') == text.size() - 1;
  }
  fs::path folder_;
};

TEST_F(Programs, MinimalTrainsUntilTheLossIsSmall) {
  const Finished finished = test::run({{OUTBOARD_MINIMAL_PROGRAM}, {}, ""});
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_EQ(finished.err, "");
  const std::size_t first = finished.out.find("loss ");
  const std::size_t last = finished.out.rfind("loss ");
  ASSERT_NE(first, last);
  EXPECT_LT(std::stod(finished.out.substr(last + 5)),
            0.001 * std::stod(finished.out.substr(first + 5)))
      << finished.out;
}

TEST_F(Programs, TextLearnsMoreThanTheOrder1Model) {
  const Finished finished =
      text({"--steps", "150", "--lr", "0.005", "--log", path("log.jsonl"), "--sample-bytes", "40"});
  ASSERT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_EQ(finished.err, "");
  for (const char* part : {"weights, FP16", "engine memory", "held out:", "order-1", "difference -",
                           "where a step's time goes", "device memory: peak", "sample, from"}) {
    EXPECT_TRUE(has(finished.out, part)) << part << "\n" << finished.out;
  }
  std::ifstream log(path("log.jsonl"));
  std::uint64_t lines = 0;
  for (std::string line; std::getline(log, line);) {
    const auto json = nlohmann::json::parse(line);
    EXPECT_EQ(json["step"], ++lines);
    EXPECT_NEAR(std::strtod(json["loss_bits"].get<std::string>().c_str(), nullptr),
                json["loss"].get<double>(), 0.0);
  }
  EXPECT_EQ(lines, 150u);
}

TEST_F(Programs, StatesOffTheDeviceAreRefusedOnADeviceThatOnlyTakesTheModel) {
  const std::vector<std::string> small{"--steps", "2", "--device-memory", "360KiB"};
  EXPECT_EQ(text(small).exit_code, 0) << text(small).err;
  std::vector<std::string> off = small;
  off.insert(off.end(), {"--offload", "off"});
  const Finished refused = text(off);
  EXPECT_EQ(refused.exit_code, 3);
  EXPECT_TRUE(one_line(refused.err)) << refused.err;
  EXPECT_TRUE(has(refused.err, "--device-memory")) << refused.err;
  EXPECT_TRUE(has(refused.err, "with --offload off")) << refused.err;
  EXPECT_FALSE(has(refused.out, "step ")) << "nothing is trained";
}

TEST_F(Programs, TooSmallForTheModelItself) {
  const Finished refused = text({"--device-memory", "16KiB"});
  EXPECT_EQ(refused.exit_code, 3);
  EXPECT_TRUE(one_line(refused.err)) << refused.err;
  EXPECT_TRUE(has(refused.err, "16384")) << refused.err;
}

TEST_F(Programs, EachMistakeIsOneLineAndAnExitCode) {
  const struct {
    std::vector<std::string> arguments;
    int exit_code;
    std::string says;
  } cases[] = {
      {{}, 2, "--data"},
      {{"--data", path("missing.txt")}, 1, "does not exist"},
      {{"--data", write("empty.txt", "")}, 1, "is empty"},
      {{"--data", write("short.txt", "hello")}, 1, "has 5 bytes; at least 40960"},
      {{"--data", write("binary", std::string("a\0b", 3))}, 1, "not UTF-8"},
      {{"--data", path("text.txt"), "--bogus"}, 2, "--bogus"},
      {{"--data", path("text.txt"), "--offload", "perhaps"}, 2, "--offload"},
      {{"--data", path("text.txt"), "--bucket", "12"}, 2, "--bucket is 12B"},
      {{"--data", path("text.txt"), "--topology", "nonsense:x"}, 2, "nonsense:x"},
      {{"--data", path("text.txt"), "--log", path("no/such/folder.jsonl")}, 2, "--log"},
  };
  for (const auto& c : cases) {
    std::vector<std::string> arguments{OUTBOARD_TEXT_PROGRAM};
    arguments.insert(arguments.end(), c.arguments.begin(), c.arguments.end());
    const Finished finished = test::run({arguments, {}, ""});
    EXPECT_EQ(finished.exit_code, c.exit_code) << c.says;
    EXPECT_TRUE(one_line(finished.err)) << finished.err;
    EXPECT_TRUE(has(finished.err, c.says)) << finished.err;
  }
}

TEST_F(Programs, HelpListsEveryFlagAndSucceeds) {
  const Finished finished = test::run({{OUTBOARD_TEXT_PROGRAM, "--help"}, {}, ""});
  EXPECT_EQ(finished.exit_code, 0);
  for (const char* flag :
       {"--data", "--device-memory", "--offload", "--steps", "--seed", "--log", "--batch",
        "--width", "--embed", "--lr", "--schedule", "--bucket", "--threads", "--topology",
        "--max-grad-norm", "--digest", "--virtual-seed"}) {
    EXPECT_TRUE(has(finished.out, flag)) << flag;
  }
}

TEST_F(Programs, InterruptEndsAfterTheStepWithASummary) {
  const Finished finished = text({"--steps", "1000000", "--print-every", "1"}, "\n     3 ");
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_TRUE(has(finished.out, "held out:"));
  EXPECT_TRUE(has(finished.out, "where a step's time goes")) << finished.out;
}

}  // namespace
}  // namespace text
