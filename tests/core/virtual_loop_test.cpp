// SPDX-License-Identifier: Apache-2.0
#include "core/virtual_loop.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "support/expect_error.hpp"

namespace outboard::core {
namespace {

struct Log {
  VirtualLoop* loop;
  std::vector<std::uint64_t> ran;
  std::vector<VirtualTime> at;
};

Callback note(Log& log, std::uint64_t number) {
  return {[](void* context, std::uint64_t argument) noexcept {
            auto& into = *static_cast<Log*>(context);
            into.ran.push_back(argument);
            into.at.push_back(into.loop->now());
          },
          &log, number};
}

TEST(VirtualLoop, RunsByTimeNotByOrderOfPosting) {
  VirtualLoop loop(1);
  Log log{&loop, {}, {}};
  loop.after(30, note(log, 3));
  loop.after(10, note(log, 1));
  loop.after(20, note(log, 2));
  EXPECT_EQ(loop.now(), 0);
  while (loop.run_one()) {
  }
  EXPECT_EQ(log.ran, (std::vector<std::uint64_t>{1, 2, 3}));
  EXPECT_EQ(log.at, (std::vector<VirtualTime>{10, 20, 30}));
  EXPECT_EQ(loop.now(), 30);
}

TEST(VirtualLoop, DelaysCountFromTheEventThatPosts) {
  VirtualLoop loop(1);
  struct Chain {
    VirtualLoop* loop;
    int left;
  } chain{&loop, 5};
  static constexpr auto kStep = [](void* context, std::uint64_t) noexcept {
    auto& self = *static_cast<Chain*>(context);
    struct Again {
      static void run(void* c, std::uint64_t) noexcept {
        auto& me = *static_cast<Chain*>(c);
        if (--me.left > 0) me.loop->after(7, {&Again::run, c, 0});
      }
    };
    self.loop->after(7, {&Again::run, context, 0});
  };
  loop.after(0, {kStep, &chain, 0});
  while (loop.run_one()) {
  }
  EXPECT_EQ(chain.left, 0);
  EXPECT_EQ(loop.now(), 35);
}

std::vector<std::uint64_t> order_of_ties(std::uint64_t seed) {
  VirtualLoop loop(seed);
  Log log{&loop, {}, {}};
  for (std::uint64_t i = 0; i < 8; ++i) loop.after(5, note(log, i));
  while (loop.run_one()) {
  }
  return log.ran;
}

TEST(VirtualLoop, SeedPicksAmongEventsOfTheSameTime) {
  std::set<std::vector<std::uint64_t>> orders;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const auto order = order_of_ties(seed);
    EXPECT_EQ(order, order_of_ties(seed)) << "seed " << seed;
    EXPECT_EQ(std::set<std::uint64_t>(order.begin(), order.end()).size(), 8u);
    orders.insert(order);
  }
  EXPECT_GT(orders.size(), 45u);
}

TEST(VirtualLoop, TheEndOfAMomentIsBehindWhatTheMomentStillBrings) {
  for (std::uint64_t seed = 0; seed < 32; ++seed) {
    VirtualLoop loop(seed);
    Log log{&loop, {}, {}};
    struct Chain {
      VirtualLoop* loop;
      Log* log;
    } chain{&loop, &log};
    const auto post = [](void* context, std::uint64_t) noexcept {
      const auto& self = *static_cast<Chain*>(context);
      self.loop->after(0, note(*self.log, 2));
      self.loop->after(1, note(*self.log, 4));
    };
    loop.after_this_moment(note(log, 3));
    loop.after(0, note(log, 1));
    loop.after(0, {post, &chain, 0});
    while (loop.run_one()) {
    }
    ASSERT_EQ(log.ran.size(), 4U);
    EXPECT_EQ(log.ran[2], 3U) << "seed " << seed;
    EXPECT_EQ(log.ran[3], 4U) << "seed " << seed;
    EXPECT_EQ(log.at, (std::vector<VirtualTime>{0, 0, 0, 1}));
  }
}

TEST(VirtualLoop, RandomNumbersStayBelowTheBoundAndReplay) {
  VirtualLoop one(42);
  VirtualLoop two(42);
  std::set<std::uint64_t> seen;
  for (int i = 0; i < 1000; ++i) {
    const std::uint64_t value = one.random_below(10);
    EXPECT_EQ(value, two.random_below(10));
    EXPECT_LT(value, 10u);
    seen.insert(value);
  }
  EXPECT_EQ(seen.size(), 10u);
  EXPECT_EQ(one.random_below(1), 0u);
}

TEST(VirtualLoop, ForgetDropsTheEventsOfOneContextOnly) {
  VirtualLoop loop(3);
  Log kept{&loop, {}, {}};
  Log dropped{&loop, {}, {}};
  for (std::uint64_t i = 0; i < 5; ++i) {
    loop.after(static_cast<VirtualTime>(i), note(kept, i));
    loop.after(static_cast<VirtualTime>(i), note(dropped, i));
  }
  loop.forget(&dropped);
  while (loop.run_one()) {
  }
  EXPECT_EQ(kept.ran, (std::vector<std::uint64_t>{0, 1, 2, 3, 4}));
  EXPECT_TRUE(dropped.ran.empty());
}

TEST(VirtualLoop, RefusesWhatCanNeverRun) {
  VirtualLoop loop(1);
  Log log{&loop, {}, {}};
  testing::expect_error(ErrorCode::invalid_argument, {"-1"}, [&] { loop.after(-1, note(log, 0)); });
  testing::expect_error(ErrorCode::invalid_argument, {"callback"}, [&] { loop.after(0, {}); });
  testing::expect_error(ErrorCode::invalid_argument, {"bound"},
                        [&] { (void)loop.random_below(0); });
}

TEST(VirtualLoop, ReportJoinsTheReporters) {
  VirtualLoop loop(1);
  const auto first = loop.add_reporter([](std::string& text) { text += "first\n"; });
  (void)loop.add_reporter([](std::string& text) { text += "second\n"; });
  EXPECT_EQ(loop.report(), "first\nsecond\n");
  loop.remove_reporter(first);
  EXPECT_EQ(loop.report(), "second\n");
}

}  // namespace
}  // namespace outboard::core
