// SPDX-License-Identifier: Apache-2.0
// What the bench of steps says is so: bounds hold, time adds up, predictions agree.
#include "step_bench/bench.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "outboard/error.hpp"

namespace outboard::step_bench {
namespace {

/// 16 layers of two buckets; which of compute, link and host is slowest depends on the case.
struct Case {
  const char* name;
  double forward_ms, backward_ms, link, host;
};
constexpr Case kCases[] = {{"balanced", 6, 12, 25e9, 2e9},
                           {"host", 0.5, 1, 25e9, 0.1e9},
                           {"link", 0.5, 1, 0.05e9, 20e9},
                           {"compute", 60, 120, 25e9, 2e9}};

Workload workload_of(const Case& c, std::uint64_t seed = 1) {
  Workload workload;
  workload.layers = 16;
  workload.params = 8192;
  workload.bucket_bytes = 8192;
  workload.forward_us = c.forward_ms * 1e2;  // a model a tenth as long
  workload.backward_us = c.backward_ms * 1e2;
  workload.link_down_bytes_per_s = workload.link_up_bytes_per_s = c.link;
  workload.host_params_per_s = c.host;
  workload.steps = 4;
  workload.seed = seed;
  return workload;
}

std::vector<const Way*> every_way() {
  std::vector<const Way*> ways;
  for (const Way& way : all_ways()) ways.push_back(&way);
  return ways;
}

/// Of the state, on the device.
double share(const WayResult& result) {
  return result.way->device_fraction(workload_of(kCases[0]));
}

StepBench measured(const Case& c, std::uint64_t seed = 1, std::uint32_t nodes = 1) {
  Workload workload = workload_of(c, seed);
  workload.nodes = nodes;
  return measure(workload, every_way(), {Clock::virtual_time});
}

TEST(StepBench, EveryWayKeepsItsBoundAndLeavesTheSameBits) {
  for (const Case& c : kCases) {
    for (const std::uint32_t nodes : {1U, 2U}) {
      const StepBench bench = measured(c, 1, nodes);
      ASSERT_EQ(bench.results.size(), all_ways().size());
      EXPECT_TRUE(bench.same_bits()) << c.name;
      for (const WayResult& result : bench.results) {
        EXPECT_LE(result.ratio(), 1.01) << c.name << ", " << result.way->name;
        EXPECT_GE(result.shortest_us(),
                  (bench.bound.forward_ns + bench.bound.backward_ns) * 1e-3 - 1e-6)
            << c.name << ", " << result.way->name << ": work was not charged";
        EXPECT_EQ(result.steps_us.size(), 4U);
      }
    }
  }
}

TEST(StepBench, ExposedTimeIsTheStepWithoutTheTrainersWork) {
  for (const Case& c : kCases) {
    for (const WayResult& result : measured(c).results) {
      const Period& mean = result.mean;
      EXPECT_NEAR(mean.exposed.total(), mean.step - mean.forward - mean.backward, 1e-6 * mean.step)
          << c.name << ", " << result.way->name;
      EXPECT_EQ(mean.exposed.host, 0.0) << c.name << ", " << result.way->name;
      EXPECT_LE(result.overlap(), 1.0 + 1e-9);
      EXPECT_GE(result.overlap(), -1e-9) << c.name << ", " << result.way->name;
    }
  }
}

TEST(StepBench, PlannerPredictsTimeAndWhatItIsLostTo) {
  for (const Case& c : kCases) {
    for (const WayResult& result : measured(c).results) {
      SCOPED_TRACE(std::string(c.name) + ", " + result.way->name);
      EXPECT_LE(std::abs(result.prediction_error()), 0.01);
      const double slack = 0.02 * result.mean.step;
      const Exposed& e = result.mean.exposed;
      const PlannedStep& p = result.predicted;
      EXPECT_NEAR(e.gradients, p.exposed_gradients_us, slack);
      EXPECT_NEAR(e.gate, p.exposed_gate_us, slack);
      EXPECT_NEAR(e.update, p.exposed_update_us, slack);
      EXPECT_NEAR(e.weights, p.exposed_weights_us, slack);
      EXPECT_NEAR(e.device, p.exposed_device_us, slack);
      EXPECT_NEAR(result.mean.update, p.update_us, slack);
      EXPECT_EQ(result.mean.bytes_up, p.bytes_up);
      EXPECT_EQ(result.mean.bytes_down, p.bytes_down);
    }
  }
}

TEST(StepBench, CausesAreThoseOfTheCase) {
  const auto exact = [](const Case& c) {
    const StepBench bench = measure(workload_of(c), {way_named("exact")}, {Clock::virtual_time});
    return bench.results.front();
  };
  const WayResult host = exact(kCases[1]);
  EXPECT_GT(host.mean.exposed.update, 0.5 * host.mean.exposed.total());
  const WayResult link = exact(kCases[2]);
  EXPECT_GT(link.mean.exposed.gradients + link.mean.exposed.weights,
            0.9 * link.mean.exposed.total());
  const WayResult compute = exact(kCases[3]);
  EXPECT_GT(compute.overlap(), 0.9);
  EXPECT_LT(compute.mean.exposed.total(), 0.01 * compute.mean.step);
}

TEST(StepBench, TimelinesHoldOneStepAndNoRowDoesTwoThings) {
  for (const WayResult& result : measured(kCases[0]).results) {
    for (const Timeline* timeline : {&result.measured, &result.planned}) {
      SCOPED_TRACE(timeline->name);
      std::map<std::pair<TimelineRow, std::uint32_t>, double> free_at;
      std::map<SpanKind, std::size_t> count;
      for (const TimelineSpan& span : timeline->spans) {
        double& free = free_at[{span.row, span.node}];
        EXPECT_GE(span.start_us, free - 1e-6) << span.name;
        EXPECT_GE(span.end_us, span.start_us);
        free = span.end_us;
        count[span.kind] += 1;
      }
      EXPECT_EQ(count[SpanKind::backward], 16U);
      EXPECT_EQ(count[SpanKind::forward], 16U);
      EXPECT_EQ(count[SpanKind::norm], 16U);
      EXPECT_GE(count[SpanKind::gate], 1U);
      EXPECT_EQ(count[SpanKind::update], 32U);
      const auto copies = static_cast<std::size_t>(std::lround(32 * (1.0 - share(result))));
      EXPECT_EQ(count[SpanKind::gradient], copies);
      EXPECT_EQ(count[SpanKind::weight], copies);
      EXPECT_EQ(count[SpanKind::other], 0U);
    }
  }
}

TEST(StepBench, VirtualTimeIsTheSameEveryTime) {
  const StepBench first = measured(kCases[0], 7);
  const StepBench second = measured(kCases[0], 7);
  for (std::size_t i = 0; i < first.results.size(); ++i) {
    EXPECT_EQ(first.results[i].steps_us, second.results[i].steps_us);
    EXPECT_EQ(first.results[i].digest, second.results[i].digest);
  }
}

TEST(StepBench, RunsInRealTimeToTheSameBits) {
  Workload workload = workload_of(kCases[0]);
  workload.steps = 2;
  const StepBench bench = measure(workload, every_way(), {Clock::virtual_time, Clock::real});
  ASSERT_EQ(bench.results.size(), 2 * all_ways().size());
  EXPECT_TRUE(bench.same_bits());
  for (const WayResult& result : bench.results) {
    if (result.clock != Clock::real) continue;
    EXPECT_EQ(result.steps_us.size(), 2U);
    EXPECT_NEAR(result.mean.exposed.total(),
                result.mean.step - result.mean.forward - result.mean.backward, 1e-3);
    // A sleep is never shorter than asked.
    EXPECT_GE(result.mean.forward, 599.0);
  }
}

TEST(StepBench, SaysWhatItRefuses) {
  const auto refusal = [](auto change) {
    Workload workload;
    change(workload);
    try {
      validate(workload);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  const auto expect = [](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  expect(refusal([](Workload& w) { w.layers = 0; }), "layers is 0; give 1 to 4096");
  expect(refusal([](Workload& w) { w.params = 0; }), "parameters of a layer is 0");
  expect(refusal([](Workload& w) { w.params = 1'000'000'000; }), "of all layers");
  expect(refusal([](Workload& w) { w.forward_us = -1; }), "forward");
  expect(refusal([](Workload& w) { w.forward_us = std::nan(""); }), "forward's time in ms is nan");
  expect(refusal([](Workload& w) { w.link_up_bytes_per_s = 0; }), "link's rate up");
  expect(refusal([](Workload& w) { w.nodes = 65; }), "nodes is 65; give 1 to 64");
  expect(refusal([](Workload& w) { w.steps = 0; }), "steps is 0");
  expect(refusal([](Workload& w) { w.bucket_bytes = 100; }), "bucket in bytes is 100");
  EXPECT_EQ(refusal([](Workload&) {}), "nothing");
}

TEST(Ways, HaveNamesOfTheirOwn) {
  std::set<std::string> names;
  for (const Way& way : all_ways()) {
    names.insert(way.name);
    EXPECT_EQ(way_named(way.name), &way);
    EXPECT_NE(way_names().find(way.name), std::string::npos);
  }
  EXPECT_EQ(names.size(), all_ways().size());
  EXPECT_EQ(way_named("sideways"), nullptr);
}

}  // namespace
}  // namespace outboard::step_bench
