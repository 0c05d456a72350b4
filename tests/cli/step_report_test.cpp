// SPDX-License-Identifier: Apache-2.0
// What `outboard bench step` prints and writes, without running the program.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "cli/bench_predictions.hpp"
#include "cli/bench_step.hpp"
#include "cli/command_line.hpp"
#include "outboard/error.hpp"

namespace outboard::cli {
namespace {

using step_bench::Clock;
using step_bench::StepBench;

const StepBench& small_bench() {
  static const StepBench bench = [] {
    BenchStepWords words;
    words.workload.layers = 4;
    words.params = "10000";
    words.forward_ms = 0.02;
    words.backward_ms = 0.04;
    words.real = true;
    words.workload.steps = 2;
    const BenchStep request = settle(words);
    return step_bench::measure(request.workload, request.ways, request.clocks);
  }();
  return bench;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(StepReport, TextFitsAHundredColumnsAndNamesEveryWay) {
  const std::string text = step_text(small_bench());
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100U) << line;
  for (const step_bench::Way& way : step_bench::all_ways()) EXPECT_TRUE(has(text, way.name));
  for (const char* part : {"4 layers of 10,000 parameters in 4 buckets", "virtual time, mean of 2",
                           "real time, mean of 2", "exposed, ms", "the same bits"}) {
    EXPECT_TRUE(has(text, part)) << part << " in " << text;
  }
}

TEST(StepReport, SaysSoWhereTheBitsDiffer) {
  StepBench bench = small_bench();
  bench.results.back().digest ^= 1U;
  EXPECT_FALSE(bench.same_bits());
  const std::string text = step_text(bench);
  EXPECT_TRUE(has(text, "digest"));
  EXPECT_FALSE(has(text, "the same bits"));
  EXPECT_EQ(nlohmann::json::parse(step_json(bench, "")).at("same_bits"), false);
}

TEST(StepReport, JsonHasEveryFigureOfEveryWay) {
  const auto json = nlohmann::json::parse(step_json(small_bench(), "outboard bench step"));
  EXPECT_EQ(json.at("command"), "outboard bench step");
  EXPECT_EQ(json.at("model").at("layers"), 4);
  EXPECT_EQ(json.at("model").at("buckets"), 4);
  EXPECT_EQ(json.at("machine").at("host_params_per_s"), 2e9);
  const auto& ways = json.at("ways");
  ASSERT_EQ(ways.size(), 2 * step_bench::all_ways().size());
  for (const auto& way : ways) {
    SCOPED_TRACE(way.at("way").get<std::string>() + ", " + way.at("clock").get<std::string>());
    for (const char* key : {"mean", "min", "max"}) EXPECT_GT(way.at("step_us").at(key), 0.0);
    EXPECT_EQ(way.at("step_us").at("values").size(), 2U);
    const double total = way.at("exposed_us").at("total");
    double sum = 0.0;
    for (const char* key : {"gradients", "gate", "update", "weights", "device", "host"}) {
      sum += way.at("exposed_us").at(key).get<double>();
    }
    EXPECT_NEAR(sum, total, 1e-9 * (1.0 + total));
    const double step = way.at("step_us").at("mean");
    EXPECT_NEAR(total,
                step - way.at("forward_us").get<double>() - way.at("backward_us").get<double>(),
                1e-6 * step);
    for (const char* key : {"bound_us", "ratio", "bytes_down"}) EXPECT_GT(way.at(key), 0.0);
    for (const char* key : {"hidden", "prediction_error", "bytes_up"}) {
      EXPECT_TRUE(way.at(key).is_number()) << key;
    }
    EXPECT_GT(way.at("predicted").at("step_us"), 0.0);
    EXPECT_EQ(way.at("digest"), ways.front().at("digest"));
    if (way.at("clock") != "virtual") continue;
    EXPECT_LE(way.at("ratio"), 1.01);
  }
  EXPECT_EQ(json.at("same_bits"), true);
}

TEST(StepReport, PageNeedsNothingFromElsewhere) {
  const std::string page = step_html(small_bench(), "outboard bench step <&>");
  EXPECT_TRUE(has(page, "<code>outboard bench step &lt;&amp;></code>"));
  EXPECT_TRUE(has(page, "prefers-color-scheme:dark"));
  for (const char* part : {"http:", "https:", "<script", "@import", "url("}) {
    EXPECT_FALSE(has(page, part)) << part;
  }
  std::size_t charts = 0;
  for (std::size_t at = page.find("<figure>"); at != std::string::npos;
       at = page.find("<figure>", at + 1)) {
    ++charts;
  }
  EXPECT_EQ(charts, 2 * small_bench().results.size());
}

TEST(BenchStepWords, AreSettledOrRefused) {
  BenchStepWords words;
  words.params = "1e6";
  words.pcie = 4;
  words.pcie_up = 8;
  words.bucket = "4MiB";
  words.ways = {"exact"};
  const BenchStep request = settle(words);
  EXPECT_EQ(request.workload.params, 1'000'000U);
  EXPECT_EQ(request.workload.link_down_bytes_per_s, 4e9);
  EXPECT_EQ(request.workload.link_up_bytes_per_s, 8e9);
  EXPECT_EQ(request.workload.bucket_bytes, 4'194'304U);
  EXPECT_EQ(request.ways, (std::vector<const step_bench::Way*>{step_bench::way_named("exact")}));
  EXPECT_EQ(request.clocks, std::vector<Clock>{Clock::virtual_time});
  EXPECT_EQ(request.command,
            "outboard bench step --layers 64 --params 1e6 --forward 6 --backward 12 --bucket 4MiB "
            "--pcie 4 --pcie-up 8 --host 2000 --nodes 1 --hbm 900 --way exact --steps 5 --seed 1");
  words.ways = {"sideways"};
  EXPECT_THROW((void)settle(words), UsageError);
  words.ways.clear();
  words.params = "many";
  EXPECT_THROW((void)settle(words), UsageError);
  words.params = "1";
  words.bucket = "lots";
  EXPECT_THROW((void)settle(words), UsageError);
  words.bucket.clear();
  words.pcie_up = -1;
  EXPECT_THROW((void)settle(words), Error);
}

TEST(BenchPredictions, JsonHasEveryRatioAndTheWorst) {
  const auto cases = step_bench::predicted_cases();
  std::vector<step_bench::PredictedResult> results;
  for (const double predicted_us : {110.0, 85.0, 99.0}) {
    step_bench::PredictedResult result;
    result.of = cases.at(results.size());
    result.predicted_us = predicted_us;
    result.steps_us = {90.0, 300.0, 100.0};
    results.push_back(result);
  }
  EXPECT_EQ(worst_of(results).predicted_us, 85.0);
  const auto json =
      nlohmann::json::parse(predictions_json(results, {.in_virtual_time = true, .json = ""}));
  EXPECT_EQ(json.at("command"), "outboard bench predictions --virtual");
  EXPECT_EQ(json.at("clock"), "virtual");
  EXPECT_DOUBLE_EQ(json.at("worst_ratio"), 0.85);
  ASSERT_EQ(json.at("cases").size(), 3U);
  EXPECT_DOUBLE_EQ(json.at("cases")[0].at("ratio"), 1.1) << "over the median step";
  EXPECT_EQ(json.at("cases")[1].at("way"), cases[1].way->name);
}

}  // namespace
}  // namespace outboard::cli
