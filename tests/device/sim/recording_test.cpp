// SPDX-License-Identifier: Apache-2.0
// What the software GPU says it did, and when.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "outboard/outboard.hpp"
#include "rig.hpp"

namespace outboard::testing {
namespace {

sim::Options rated(sim::Options options) {
  options.rates.link_down_bytes_per_s = 1e9;  // a byte per ns
  options.rates.link_up_bytes_per_s = 0.5e9;
  options.rates.device_bytes_per_s = 10e9;
  return options;
}

struct Recorded : Rig {
  explicit Recorded(const sim::Options& options)
      : Rig(options), a(gpu.create_stream("a")), b(gpu.create_stream("b")) {
    memory = allocate<std::byte>(100000);
  }
  NativeStream a, b;
  std::byte* memory;
  std::vector<std::byte> host = std::vector<std::byte>(10000);
};

TEST(Recording, IsOffUntilStarted) {
  Recorded rig(rated(virtual_options()));
  rig.gpu.copy_to_host(rig.host, rig.memory, rig.a);
  rig.gpu.synchronize();
  EXPECT_TRUE(rig.gpu.recording().spans.empty());
}

TEST(Recording, SaysWhatRanWhereAndWhenToTheNanosecond) {
  Recorded rig(rated(virtual_options()));
  rig.gpu.start_recording(100);
  rig.gpu.launch(
      rig.a, 5000ns, [](sim::KernelView&) {}, "mine");
  rig.gpu.copy_to_host(rig.host, rig.memory + 512, rig.a);
  rig.gpu.copy_to_device(rig.memory + 50000, rig.host, rig.b);
  rig.device.fill_zero(rig.b, rig.memory, 1024);
  rig.gpu.synchronize();
  std::map<std::string, TimelineSpan> spans;
  for (const TimelineSpan& span : rig.gpu.recording().spans) spans[span.name] = span;
  const auto expect = [&](const char* name, TimelineRow row, double start_us, double end_us) {
    EXPECT_EQ(spans.at(name).row, row) << name;
    EXPECT_EQ(spans.at(name).start_us, start_us) << name;
    EXPECT_EQ(spans.at(name).end_us, end_us) << name;
  };
  expect("mine", TimelineRow::compute, 0.0, 5.0);
  expect("copy_to_host", TimelineRow::link_down, 5.0, 15.0);
  expect("copy_to_device", TimelineRow::link_up, 0.0, 20.0);
  EXPECT_EQ(spans.at("copy_to_host").stream, "a");
  EXPECT_EQ(spans.at("copy_to_host").bytes, 10000U);
  EXPECT_EQ(spans.at("copy_to_host").address, rig.memory + 512);
  EXPECT_EQ(spans.at("copy_to_device").address, rig.memory + 50000);
  EXPECT_EQ(spans.count("record"), 0U) << "takes no time on any row";
}

void expect_one_at_a_time(const Timeline& timeline) {
  std::map<std::pair<TimelineRow, std::uint32_t>, double> free_at;
  for (const TimelineSpan& span : timeline.spans) {
    double& free = free_at[{span.row, span.node}];
    EXPECT_GE(span.start_us, free) << span.name;
    EXPECT_GE(span.end_us, span.start_us) << span.name;
    free = span.end_us;
  }
}

TEST(Recording, RowsDoOneThingAtATimeInBothModes) {
  for (const sim::Options& options : {rated(virtual_options(7)), rated(thread_options())}) {
    Recorded rig(options);
    rig.gpu.start_recording(1000);
    std::vector<std::byte> other(10000);
    for (int i = 0; i < 20; ++i) {
      for (const NativeStream stream : {rig.a, rig.b}) {
        std::byte* const device = rig.memory + (stream == rig.a ? 0 : 50000);
        const std::span<std::byte> host = stream == rig.a ? rig.host : other;
        rig.gpu.launch(stream, 3000ns, [](sim::KernelView&) {});
        rig.gpu.copy_to_device(device, host, stream);
        rig.device.fill_zero(stream, device, 100);
        rig.gpu.copy_to_host(host, device, stream);
      }
      rig.gpu.synchronize(rig.a);
    }
    rig.gpu.synchronize();
    const Timeline timeline = rig.gpu.recording();
    EXPECT_GE(timeline.spans.size(), 160U);
    EXPECT_EQ(timeline.dropped, 0U);
    expect_one_at_a_time(timeline);
    const auto waits = std::ranges::count(timeline.spans, TimelineRow::caller, &TimelineSpan::row);
    EXPECT_GE(waits, 1) << "synchronize() waited";
  }
}

TEST(Recording, HasTheUpdatesOfAnEngine) {
  for (sim::Options options : {rated(virtual_options(3)), rated(thread_options())}) {
    options.rates.host_elems_per_s = {1e9};
    Recorded rig(options);
    Engine engine(rig.gpu.device(), {.bucket_bytes = 8192});
    const GroupId group = engine.add_group(AdamW{});
    const ParameterId parameter =
        engine.add_parameter({.name = "w", .elems = 10000, .data = rig.memory, .group = group});
    const std::vector<std::byte> zero(50000);
    rig.gpu.copy_to_device(rig.memory, zero, rig.a);
    rig.gpu.synchronize();
    engine.commit();
    rig.gpu.start_recording(1000);
    engine.gradient_ready(parameter, rig.memory + 20480, rig.a);
    EXPECT_TRUE(engine.step().applied());
    engine.synchronize();
    const Timeline timeline = rig.gpu.recording();
    expect_one_at_a_time(timeline);
    std::vector<std::uint32_t> updated;
    std::uint64_t up = 0;
    for (const TimelineSpan& span : timeline.spans) {
      if (span.row == TimelineRow::link_up) up += span.bytes;
      if (span.row != TimelineRow::node) continue;
      updated.push_back(span.index);
      EXPECT_EQ(span.kind, SpanKind::update);
    }
    // In real time a bucket may land, and be updated, before one that was queued earlier.
    if (options.mode == sim::Mode::threads) std::ranges::sort(updated);
    EXPECT_EQ(updated, (std::vector<std::uint32_t>{0, 1, 2}));
    EXPECT_EQ(up, 20000U);
  }
}

}  // namespace
}  // namespace outboard::testing
