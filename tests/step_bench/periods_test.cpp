// SPDX-License-Identifier: Apache-2.0
// What a recording made by hand is split into.
#include "step_bench/periods.hpp"

#include <gtest/gtest.h>

namespace outboard::step_bench {
namespace {

/// Two layers of one bucket each.
class Recording {
 public:
  Recording() {
    workload_.layers = 2;
    workload_.params = 4096;
    for (int i = 0; i < 2; ++i)
      layers_.push_back({memory_ + i * 16384, memory_ + i * 16384 + 8192});
  }
  void kernel(const char* name, double start, double end) {
    add({.row = TimelineRow::compute,
         .start_us = start,
         .end_us = end,
         .name = name,
         .stream = "trainer"});
  }
  void norm(std::size_t layer, double start, double end) {
    add({.row = TimelineRow::compute,
         .kind = SpanKind::norm,
         .start_us = start,
         .end_us = end,
         .address = layers_[layer].gradient,
         .name = "reduce_gradient",
         .stream = "norm"});
  }
  void gradient(std::size_t layer, double start, double end) {
    copy(TimelineRow::link_down, layers_[layer].gradient, start, end);
  }
  void gate(double start, double end) { copy(TimelineRow::link_down, memory_ + 60000, start, end); }
  void weight(std::size_t layer, double start, double end) {
    copy(TimelineRow::link_up, layers_[layer].weight, start, end);
  }
  void update(std::uint32_t bucket, double start, double end) {
    add({.row = TimelineRow::node,
         .kind = SpanKind::update,
         .index = bucket,
         .start_us = start,
         .end_us = end,
         .name = "update"});
  }
  [[nodiscard]] std::vector<StepSpans> split(const char* way) const {
    return split_into_periods(timeline_, workload_, *way_named(way), layers_);
  }

 private:
  void copy(TimelineRow row, const void* address, double start, double end) {
    add({.row = row,
         .start_us = start,
         .end_us = end,
         .bytes = 8192,
         .address = address,
         .name = "copy"});
  }
  void add(const TimelineSpan& span) { timeline_.spans.push_back(span); }

  std::byte memory_[65536];
  Workload workload_;
  std::vector<LayerMemory> layers_;
  Timeline timeline_;
};

/// A forward, a step of 100 us, and a forward that belongs to no step.
Recording one_step() {
  Recording r;
  r.kernel("forward", 0, 5);
  r.kernel("forward", 5, 10);
  r.kernel("backward", 10, 20);
  r.norm(1, 20, 21);
  r.kernel("backward", 21, 31);
  r.gradient(1, 21, 40);
  r.norm(0, 31, 33);
  r.gate(40, 42);
  r.gradient(0, 42, 50);
  r.update(1, 42, 60);
  r.update(0, 60, 70);
  r.weight(0, 70, 75);
  r.kernel("forward", 75, 80);
  r.weight(1, 75, 85);
  r.kernel("forward", 90, 110);
  r.kernel("forward", 200, 210);
  r.kernel("forward", 210, 220);
  return r;
}

TEST(Periods, ChargeEachMomentToWhatTheNextLayerLacks) {
  const Recording recording = one_step();
  const std::vector<StepSpans> steps = recording.split("exact");
  ASSERT_EQ(steps.size(), 1U);
  const Period& p = steps[0].period;
  EXPECT_EQ(p.step, 100.0);  // 10 to 110
  EXPECT_EQ(p.forward, 25.0);
  EXPECT_EQ(p.backward, 20.0);
  EXPECT_EQ(p.exposed.device, 1.0 + 2.0);
  EXPECT_EQ(p.exposed.gate, 9.0);       // 33 to 42
  EXPECT_EQ(p.exposed.gradients, 8.0);  // 42 to 50, of layer 0
  EXPECT_EQ(p.exposed.update, 20.0);    // 50 to 70
  EXPECT_EQ(p.exposed.weights, 5.0 + 5.0);
  EXPECT_EQ(p.exposed.host, 5.0);  // 85 to 90: all is there
  EXPECT_EQ(p.exposed.total(), p.step - p.forward - p.backward);
  EXPECT_EQ(p.update, 28.0);
  EXPECT_EQ(p.down, 29.0);
  EXPECT_EQ(p.bytes_down, 3 * 8192U);
  EXPECT_EQ(p.bytes_up, 2 * 8192U);
}

TEST(Periods, WhereAllWeightsAreWaitedForAllCount) {
  const std::vector<StepSpans> steps = one_step().split("serial");
  ASSERT_EQ(steps.size(), 1U);
  const Exposed& e = steps[0].period.exposed;
  EXPECT_EQ(e.gradients, 8.0);
  EXPECT_EQ(e.update, 20.0);
  EXPECT_EQ(e.weights, 10.0);
}

TEST(Periods, NameWhatTheyHold) {
  const std::vector<StepSpans> steps = one_step().split("exact");
  ASSERT_EQ(steps.size(), 1U);
  std::vector<std::string> names;
  for (const TimelineSpan& span : steps[0].timeline.spans) names.push_back(span.name);
  const std::vector<std::string> expected = {
      "backward, layer 1",  "norm, bucket 1",   "backward, layer 0",
      "gradient, bucket 1", "norm, bucket 0",   "gate",
      "gradient, bucket 0", "update, bucket 1", "update, bucket 0",
      "weight, bucket 0",   "forward, layer 0", "weight, bucket 1",
      "forward, layer 1"};
  EXPECT_EQ(names, expected);
  EXPECT_EQ(steps[0].timeline.spans.front().start_us, 0.0);
}

TEST(Periods, NothingRecordedIsNoStep) {
  EXPECT_TRUE(Recording().split("exact").empty());
}

}  // namespace
}  // namespace outboard::step_bench
