// SPDX-License-Identifier: Apache-2.0
#include "core/span_recorder.hpp"

#include <gtest/gtest.h>

#include <string>

#include "core/virtual_loop.hpp"
#include "core/waiter.hpp"

namespace outboard::core {
namespace {

TEST(SpanRecorder, KeepsNothingUntilStartedAndNothingOnceStopped) {
  SpanRecorder recorder(0);
  EXPECT_FALSE(recorder.on());
  recorder.add({.name = "early"}, {1, 2});
  recorder.start(4);
  EXPECT_TRUE(recorder.on());
  EXPECT_TRUE(recorder.take().spans.empty());
  recorder.add({.name = "kept"}, {1, 2});
  ASSERT_EQ(recorder.take().spans.size(), 1U);
  recorder.start(0);
  recorder.add({.name = "late"}, {3, 4});
  EXPECT_TRUE(recorder.take().spans.empty());
  EXPECT_EQ(recorder.take().dropped, 0U);
}

TEST(SpanRecorder, IsBoundedAndCountsTheRest) {
  SpanRecorder recorder(0);
  recorder.start(3);
  for (int i = 0; i < 10; ++i) recorder.add({.name = "span"}, {i, i + 1});
  const Timeline kept = recorder.take();
  EXPECT_EQ(kept.spans.size(), 3U);
  EXPECT_EQ(kept.dropped, 7U);
}

TEST(SpanRecorder, CopiesNamesSortsByStartAndCountsFromItsOrigin) {
  SpanRecorder recorder(1000);
  recorder.start(2);
  {
    const std::string name(60, 'n');
    const std::string stream(40, 's');
    recorder.add({.row = TimelineRow::link_up, .bytes = 7, .name = name, .stream = stream},
                 {5000, 6500});
  }
  recorder.add({.row = TimelineRow::node, .node = 3, .kind = SpanKind::update, .index = 9},
               {2000, 4000});
  const Timeline kept = recorder.take();
  ASSERT_EQ(kept.spans.size(), 2U);
  EXPECT_EQ(kept.spans[0].row, TimelineRow::node);
  EXPECT_EQ(kept.spans[0].node, 3U);
  EXPECT_EQ(kept.spans[0].index, 9U);
  EXPECT_EQ(kept.spans[0].start_us, 1.0);
  EXPECT_EQ(kept.spans[0].end_us, 3.0);
  EXPECT_EQ(kept.spans[1].name, std::string(47, 'n'));
  EXPECT_EQ(kept.spans[1].stream, std::string(31, 's'));
  EXPECT_EQ(kept.spans[1].bytes, 7U);
}

TEST(SpanRecorder, HearsOfWaitsThatTakeTime) {
  VirtualLoop loop(1);
  const auto waiter = make_virtual_waiter(loop);
  SpanRecorder recorder(0);
  waiter->record_to(&recorder);
  recorder.start(8);
  bool done = false;
  std::mutex mutex;
  std::unique_lock lock(mutex);
  loop.after(2000, {[](void* flag, std::uint64_t) noexcept { *static_cast<bool*>(flag) = true; },
                    &done, 0});
  waiter->wait(
      lock, [&] { return done; }, "step(): something");
  waiter->wait(
      lock, [&] { return done; }, "step(): something that is there");
  const Timeline kept = recorder.take();
  ASSERT_EQ(kept.spans.size(), 1U);
  EXPECT_EQ(kept.spans[0].row, TimelineRow::caller);
  EXPECT_EQ(kept.spans[0].kind, SpanKind::wait);
  EXPECT_EQ(kept.spans[0].name, "step(): something");
  EXPECT_EQ(kept.spans[0].end_us - kept.spans[0].start_us, 2.0);
}

TEST(SpanRecorder, HearsOfThreadsThatWaitAndLooksNoOftenerThanTheyWould) {
  const auto waiter = make_thread_waiter();
  SpanRecorder recorder(0);
  waiter->record_to(&recorder);
  recorder.start(8);
  int looks = 0;
  std::mutex mutex;
  std::unique_lock lock(mutex);
  waiter->wait(
      lock, [&] { return ++looks == 1; }, "something that is there");
  EXPECT_EQ(looks, 1);
  EXPECT_TRUE(recorder.take().spans.empty());
  waiter->wait(
      lock,
      [&] {
        waiter->wake();  // before the sleep begins, which then ends at once
        return ++looks == 3;
      },
      "something");
  EXPECT_EQ(looks, 3);
  const Timeline kept = recorder.take();
  ASSERT_EQ(kept.spans.size(), 1U);
  EXPECT_EQ(kept.spans[0].name, "something");
}

}  // namespace
}  // namespace outboard::core
