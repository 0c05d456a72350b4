// SPDX-License-Identifier: Apache-2.0
// Timelines as traces and charts.
#include "cli/timeline.hpp"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "cli/plan_request.hpp"

namespace outboard::cli {
namespace {

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

PlanRequest small_request() {
  PlanRequest request;
  request.shape = preset_shape("gpt2");
  request.host_bytes = std::uint64_t{256} << 30;
  request.nodes = 2;
  request.link = {25e9, Known::given};
  request.host_update = {2e9, Known::given};
  request.compute = {50e12, Known::given};
  request.device_memory = {900e9, Known::given};
  return request;
}

TEST(Trace, HoldsEverySpanOfAPlanOnRowsThatDoOneThingAtATime) {
  const std::vector<Timeline> timelines = plan_timelines(small_request(), std::uint64_t{1} << 30);
  ASSERT_EQ(timelines.size(), 3U);
  const auto trace = nlohmann::json::parse(trace_of(timelines));
  EXPECT_EQ(trace.at("displayTimeUnit"), "ms");
  std::map<std::pair<int, int>, double> free_at;
  std::map<std::pair<int, int>, std::string> rows;
  std::map<int, std::string> processes;
  std::map<int, std::size_t> spans;
  for (const auto& event : trace.at("traceEvents")) {
    const int process = event.at("pid");
    const std::pair<int, int> row{process, event.at("tid").get<int>()};
    if (event.at("ph") == "M") {
      const std::string name = event.at("args").at("name");
      if (event.at("name") == "process_name") processes[process] = name;
      if (event.at("name") == "thread_name") rows[row] = name;
      continue;
    }
    ASSERT_EQ(event.at("ph"), "X");
    const double start = event.at("ts");
    EXPECT_GE(start, free_at[row] - 1e-6) << event;
    EXPECT_GE(event.at("dur"), 0.0);
    free_at[row] = start + event.at("dur").get<double>();
    EXPECT_EQ(rows.count(row), 1U) << "a row without a name";
    spans[process] += 1;
  }
  ASSERT_EQ(processes.size(), 3U);
  EXPECT_EQ(processes[0].substr(0, 22), "all state on the host:");
  for (int process = 0; process < 3; ++process) {
    EXPECT_EQ(spans[process], timelines[static_cast<std::size_t>(process)].spans.size());
  }
  std::set<std::string> names;
  for (const auto& [row, name] : rows) {
    if (row.first == 0) names.insert(name);
  }
  EXPECT_EQ(names, (std::set<std::string>{"device", "link down", "link up", "node 0", "node 1"}));
}

Timeline with_spans(std::size_t count, double us) {
  Timeline timeline;
  timeline.name = "a <b> & c";
  for (std::size_t i = 0; i < count; ++i) {
    const auto start = static_cast<double>(i) * us;
    timeline.spans.push_back({.kind = SpanKind::forward,
                              .start_us = start,
                              .end_us = start + us,
                              .name = "forward, layer <1>"});
  }
  return timeline;
}

TEST(Chart, DrawsEachSpanThatCanBeSeen) {
  const std::vector<Timeline> timelines = {with_spans(10, 100.0)};
  const std::string text = charts_of(timelines);
  EXPECT_EQ(count_of(text, "<title>"), 10U);
  EXPECT_EQ(count_of(text, "layer &lt;1>"), 10U);
  EXPECT_EQ(count_of(text, "a &lt;b> &amp; c"), 1U);
  EXPECT_EQ(count_of(text, "<svg "), count_of(text, "</svg>"));
}

TEST(Chart, DrawsNarrowSpansTogether) {
  const std::vector<Timeline> timelines = {with_spans(100'000, 1.0)};
  const std::string text = charts_of(timelines);
  EXPECT_LT(count_of(text, "<title>"), 1000U);
  EXPECT_NE(text.find("100000 times forward: 100000.0 us"), std::string::npos);
}

TEST(Chart, HasAColourForEveryKindInLightAndDark) {
  const std::string style = chart_style();
  for (const SpanKind kind :
       {SpanKind::forward, SpanKind::backward, SpanKind::norm, SpanKind::gradient, SpanKind::gate,
        SpanKind::update, SpanKind::weight, SpanKind::state, SpanKind::wait, SpanKind::other}) {
    EXPECT_EQ(count_of(style, std::string("--") + span_kind_name(kind) + ":"), 2U);
  }
}

TEST(Chart, OfNothingIsStillAPicture) {
  const std::vector<Timeline> timelines = {Timeline{}};
  EXPECT_EQ(count_of(charts_of(timelines), "<figure>"), 1U);
}

TEST(PlanPage, ShowsANameAsText) {
  PlanRequest request = small_request();
  request.shape.name = "<b>&";
  const std::string page = plan_html(make_plan_report(request));
  EXPECT_EQ(count_of(page, "<b>"), 0U);
  EXPECT_EQ(count_of(page, "&lt;b>&amp;"), 2U) << "as the heading, and in the text";
}

TEST(PlanPage, HoldsTheChartsAndTheText) {
  const PlanReport report = make_plan_report(small_request());
  const std::string page = plan_html(report);
  EXPECT_EQ(count_of(page, "<figure>"), 3U);
  EXPECT_NE(page.find("124,439,808 parameters"), std::string::npos);
  for (const char* part : {"http:", "https:", "<script", "@import", "url("}) {
    EXPECT_EQ(count_of(page, part), 0U) << part;
  }
}

}  // namespace
}  // namespace outboard::cli
