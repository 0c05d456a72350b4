// SPDX-License-Identifier: Apache-2.0
/// The learning rate, the lines that are shown and logged, and when a loss counts as diverged.
#include "report.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "loss_watch.hpp"
#include "progress.hpp"
#include "schedule.hpp"

namespace gpt {
namespace {

TEST(LearningRate, RisesThenFallsAlongACosine) {
  const LearningRate rate{.peak = 2.0, .least = 0.5, .warmup = 10, .steps = 110};
  EXPECT_DOUBLE_EQ(rate.at(1), 0.2);
  EXPECT_DOUBLE_EQ(rate.at(5), 1.0);
  EXPECT_DOUBLE_EQ(rate.at(10), 2.0);
  EXPECT_NEAR(rate.at(60), 1.25, 1e-12);
  EXPECT_DOUBLE_EQ(rate.at(110), 0.5);
  EXPECT_DOUBLE_EQ(rate.at(200), 0.5);
  for (std::uint64_t step = 11; step < 110; ++step) EXPECT_GT(rate.at(step), rate.at(step + 1));
}

TEST(LearningRate, WithoutWarmUpStartsAtThePeakAndMayEndThere) {
  EXPECT_NEAR((LearningRate{.peak = 1.0, .least = 0.0, .warmup = 0, .steps = 100}).at(1), 1.0,
              0.001);
  EXPECT_DOUBLE_EQ((LearningRate{.peak = 1.0, .least = 0.0, .warmup = 5, .steps = 5}).at(5), 1.0);
}

std::string complaint(LossWatch& watch, std::uint64_t step, double loss) {
  try {
    watch.check(step, loss, 0.01);
  } catch (const Diverged& diverged) {
    return diverged.what();
  }
  return "";
}

TEST(LossWatch, NamesTheStepTheLossAndTheLastGoodOne) {
  LossWatch watch(256);
  EXPECT_EQ(complaint(watch, 1, 5.5), "");
  const std::string nan = complaint(watch, 2, std::nan(""));
  for (const char* part : {"nan", "at step 2", "0.01", "5.5000", "lower --lr"}) {
    EXPECT_NE(nan.find(part), std::string::npos) << nan;
  }
  EXPECT_NE(complaint(watch, 3, HUGE_VAL), "");
}

TEST(LossWatch, LetsASpikePassButNotALossThatStays) {
  LossWatch watch(256);
  for (std::uint64_t step = 1; step <= 50; ++step) {
    ASSERT_EQ(complaint(watch, step, step == 20 ? 20.0 : 4.0), "") << step;
  }
  std::string text;
  std::uint64_t steps = 0;
  while (text.empty() && steps < 100) text = complaint(watch, ++steps, 8.0);
  EXPECT_NE(text.find("the loss is 8.0000"), std::string::npos) << text;
  EXPECT_GT(steps, 5u);
}

StepReport some_report() {
  StepReport report;
  report.result.step = 7;
  report.result.outcome = outboard::StepOutcome::applied;
  report.result.grad_norm = 0.5;
  report.result.loss_scale = 65536;
  report.loss = 0.1 + 0.2;
  report.lr = 1e-3;
  report.ms = 200.0;
  report.tokens = 1000;
  report.split = TimeSplit{60, 90, 5, 10, 30, 5};
  report.eta_s = 187.0;
  return report;
}

TEST(GptReport, StepLineHasTheNumbersAndTheLargestExposedPart) {
  const std::string line = step_line(some_report());
  for (const char* part :
       {"7", "0.3000", "0.5000", "1.00e-03", "65536", "200.0", "5000", "50.0", "gate", "3:07"}) {
    EXPECT_NE(line.find(part), std::string::npos) << part << " in " << line;
  }
  StepReport skipped = some_report();
  skipped.result.outcome = outboard::StepOutcome::skipped;
  skipped.result.non_finite = outboard::NonFinite{.parameter = {}, .name = "block3.attention"};
  EXPECT_NE(step_line(skipped).find("skipped, non-finite: block3.attention"), std::string::npos);
}

TEST(GptReport, JsonHoldsTheExactBitsAndTheSplit) {
  StepReport report = some_report();
  report.result.grad_norm = std::nan("");
  report.digest = 0x1234;
  report.applied = 5;
  report.skipped = 2;
  const auto json = nlohmann::json::parse(json_line(report));
  EXPECT_EQ(json["outcome"], "applied");
  EXPECT_EQ(json["steps_applied"], 5);
  EXPECT_EQ(json["steps_skipped"], 2);
  EXPECT_EQ(std::strtod(json["loss_bits"].get<std::string>().c_str(), nullptr), 0.1 + 0.2);
  EXPECT_TRUE(json["grad_norm"].is_null());
  EXPECT_EQ(json["digest"], "0000000000001234");
  EXPECT_EQ(json["split_ms"]["wait_gradients"], 10.0);
  double sum = 0.0;
  for (const auto& part : json["split_ms"]) sum += part.get<double>();
  EXPECT_EQ(sum, json["ms"]);
  EXPECT_FALSE(json.contains("held_out"));
}

TEST(GptReport, ShareOfTheMatrixProductsIsShownAndLogged) {
  const ProductRate rate{.tokens_per_s = 2500.0, .flops_per_s = 1.2e11, .share = 0.6, .threads = 2};
  const TimeReport time{
      .steps = 2, .tokens = 3000, .parameters = 10, .ms = 2000.0, .products = rate};
  EXPECT_NE(time_text(time).find("tokens/s: 1500; the matrix products alone would allow 2500, at "
                                 "120.0 GFLOP/s on 2 threads; share 60 %\n"),
            std::string::npos)
      << time_text(time);
  StepReport report = some_report();
  EXPECT_FALSE(nlohmann::json::parse(json_line(report)).contains("products"));
  report.products = rate;
  const auto json = nlohmann::json::parse(json_line(report));
  EXPECT_EQ(json["products"]["tokens_per_s"], 2500.0);
  EXPECT_EQ(json["products"]["share"], 0.6);
}

TEST(GptReport, TimesAreShort) {
  EXPECT_EQ(show_time(0.0), "0:00");
  EXPECT_EQ(show_time(59.6), "1:00");
  EXPECT_EQ(show_time(3600.0 + 120.0 + 3.0), "1:02:03");
  EXPECT_EQ(show_time(-5.0), "0:00");
}

TEST(Progress, OnATerminalALineIsWrittenOverUntilItIsKept) {
  std::ostringstream out;
  Progress progress(out, 8);
  progress.step("first line, too long", false);
  progress.step("second", false);
  progress.step("a kept line is whole", true);
  progress.step("live", false);
  progress.note("note");
  EXPECT_EQ(out.str(), "first l\r\x1b[Ksecond\r\x1b[Ka kept line is whole\nlive\nnote\n");
}

TEST(Progress, ElsewhereOnlyKeptLinesAndNoControlCharacters) {
  std::ostringstream out;
  Progress progress(out, 0);
  progress.step("1", false);
  progress.step("2", true);
  progress.note("note");
  progress.finish();
  EXPECT_EQ(out.str(), "2\nnote\n");
}

}  // namespace
}  // namespace gpt
