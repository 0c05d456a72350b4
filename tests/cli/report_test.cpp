// SPDX-License-Identifier: Apache-2.0
#include "cli/report.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace outboard::cli {
namespace {

Report sample() {
  update_bench::Measurement m;
  m.params = 100'000'000;
  m.bytes_per_param = 28;
  m.passes = 1;
  m.update = {0.7, 0.8, 0.9};
  m.roof = {0.6, 0.6, 0.6};
  m.triad = {0.4, 0.4, 0.4};
  m.check = {
      .equal = true, .digest = 0xABC, .expected = 0xABC, .elems = 32'768, .target = "scalar"};
  m.pages = {.known = true, .resident_bytes = 1'000, .huge_bytes = 970};
  return {
      "outboard bench update --params 1e8", {"A <b> CPU", "avx2", {2, 2}, "4 threads", ""}, {m}};
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(TextReport, RowHasRatesAndShare) {
  const Report report = sample();
  const std::string row = text_rows(report.measurements[0]);
  // 28 B in 0.8 ns: 35 GB/s; the roof's 24 in 0.6: 40; 0.875 of it.
  for (const char* part : {"100,000,000", "0.800", "28", "35.0", "40.0", "0.875 ("}) {
    EXPECT_TRUE(has(row, part)) << part << " in " << row;
  }
  EXPECT_TRUE(has(text_head(report), "avx2; 4 threads, on 2 NUMA nodes"));
  const std::string foot = text_foot(report);
  EXPECT_TRUE(has(foot, "97 % huge pages"));
  EXPECT_TRUE(has(foot, "triad 30.0 GB/s"));
  EXPECT_TRUE(has(foot, "the same bits (digest 0000000000000abc)"));
}

TEST(JsonReport, HoldsEveryRepeatAndTheSummary) {
  const auto json = nlohmann::json::parse(json_of(sample()));
  const auto& m = json.at("measurements").at(0);
  EXPECT_EQ(m.at("params"), 100'000'000);
  EXPECT_EQ(m.at("tensors"), 1);
  EXPECT_EQ(m.at("ns_per_param").at("values").size(), 3U);
  EXPECT_DOUBLE_EQ(m.at("share_of_roof").at("median"), 0.875);
  EXPECT_EQ(m.at("check").at("digest"), "0000000000000abc");
  EXPECT_EQ(json.at("machine").at("threads_per_node"), (std::vector<int>{2, 2}));
  EXPECT_FALSE(m.contains("time_over_one_tensor"));
}

TEST(HtmlReport, StandsAloneAndEscapes) {
  const std::string page = html_of(sample());
  EXPECT_TRUE(page.starts_with("<!doctype html>"));
  EXPECT_TRUE(has(page, "<svg "));
  EXPECT_TRUE(has(page, "A &lt;b> CPU"));
  EXPECT_TRUE(has(page, "0.875"));
  for (const char* part : {"http:", "https:", "src=", "<script", "<link", "url("}) {
    EXPECT_FALSE(has(page, part)) << part;
  }
}

TEST(Reports, TellWrongResultsApart) {
  Report report = sample();
  EXPECT_EQ(wrong_result(report), "");
  report.measurements[0].check.equal = false;
  report.measurements[0].check.expected = 0xDEF;
  EXPECT_TRUE(has(wrong_result(report), "expected 0000000000000def"));
  EXPECT_TRUE(has(text_foot(report), "DIFFERENT"));
  EXPECT_TRUE(has(html_of(report), "<td>NO</td>"));
}

}  // namespace
}  // namespace outboard::cli
