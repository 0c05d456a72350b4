// SPDX-License-Identifier: Apache-2.0
/// `outboard` as a user runs it.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "outboard/version.hpp"
#include "program.hpp"

namespace outboard::cli {
namespace {

TEST(Program, SaysItsVersionAndHelp) {
  const Finished version = outboard({"--version"});
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_EQ(version.out, std::string("outboard ") + kVersion + "\n");
  const Finished help = outboard({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_TRUE(has(help.out, "bench"));
  const Finished update = outboard({"bench", "update", "--help"});
  EXPECT_EQ(update.exit_code, 0);
  for (const char* flag :
       {"--params", "--dtype", "--weight-dtype", "--rule", "--rounding", "--alias", "--tensors",
        "--subnormal", "--threads", "--repeat", "--json", "--html", "Examples:"}) {
    EXPECT_TRUE(has(update.out, flag)) << flag;
  }
}

TEST(Program, RefusesInOneLineWithStatusTwo) {
  const std::vector<Refusal> cases = {
      {{}, "subcommand"},
      {{"bench", "update", "--params", "10"}, "is 10; give 100000 to 1000000000"},
      {{"bench", "update", "--params", "many"}, "\"many\" is no number"},
      {{"bench", "update", "--repeat", "3"}, "is 3; give 7"},
      {{"bench", "update", "--rule", "adamax"}, "adamax"},
      {{"bench", "update", "--dtype", "f32", "--weight-dtype", "f16", "--alias", "on"}, "size"},
      {{"bench", "update", "--json", "/nowhere/at/all.json"}, "cannot write /nowhere/at/all.json"},
  };
  for (const Refusal& refused : cases) expect_refused(refused.arguments, refused.says);
}

TEST(Program, MeasuresIntoJsonAlone) {
  const Finished finished =
      outboard({"bench", "update", "--params", "1e5,2e5", "--rule", "lion", "--dtype", "bf16",
                "--rounding", "stochastic", "--threads", "1", "--repeat", "7", "--json", "-"});
  ASSERT_EQ(finished.exit_code, 0) << finished.err;
  const auto json = nlohmann::json::parse(finished.out);
  ASSERT_EQ(json.at("measurements").size(), 2U);
  const auto& m = json.at("measurements").at(1);
  EXPECT_EQ(m.at("params"), 200'000);
  EXPECT_EQ(m.at("rule"), "lion");
  EXPECT_EQ(m.at("bytes_per_param"), 20);
  EXPECT_EQ(m.at("ns_per_param").at("values").size(), 7U);
  EXPECT_GT(m.at("share_of_roof").at("median"), 0.0);
  EXPECT_EQ(m.at("check").at("equal"), true);
  EXPECT_EQ(json.at("machine").at("threads_per_node").at(0), 1);
}

TEST(Program, PrintsATableAndWritesAPage) {
  const std::filesystem::path page = std::filesystem::path(::testing::TempDir()) /
                                     ("outboard_" + std::to_string(getpid()) + ".html");
  const Finished finished = outboard(
      {"bench", "update", "--tensors", "100", "--subnormal", "--repeat", "7", "--html", page});
  ASSERT_EQ(finished.exit_code, 0) << finished.err;
  for (const char* part : {"in 100 tensors", "share of the roof", "time over one tensor as large",
                           "time on subnormal over normal values", "the same bits", "B/param"}) {
    EXPECT_TRUE(has(finished.out, part)) << part << " in " << finished.out;
  }
  std::ifstream in(page);
  const std::string html{std::istreambuf_iterator<char>(in), {}};
  EXPECT_TRUE(has(html, "<svg ") && has(html, "</html>"));
  std::filesystem::remove(page);
}

}  // namespace
}  // namespace outboard::cli
