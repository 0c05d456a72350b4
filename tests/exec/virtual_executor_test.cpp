// SPDX-License-Identifier: Apache-2.0
/// Exact times of tasks on the virtual clock.
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/virtual_loop.hpp"
#include "exec/executor.hpp"
#include "outboard/error.hpp"

namespace outboard::exec {
namespace {

struct Log {
  explicit Log(std::uint64_t seed) : loop(seed) {}

  core::VirtualLoop loop;
  std::vector<std::int64_t> body_ns = std::vector<std::int64_t>(16, -1);
  std::vector<std::int64_t> done_ns = std::vector<std::int64_t>(16, -1);

  static void run(void* context, std::uint64_t task, std::uint32_t) noexcept {
    auto& self = *static_cast<Log*>(context);
    self.body_ns[task] = self.loop.now();
  }
  static void end(void* context, std::uint64_t task) noexcept {
    auto& self = *static_cast<Log*>(context);
    self.done_ns[task] = self.loop.now();
  }
  Task task(std::uint32_t node, std::uint64_t cost_elems, std::uint64_t argument) {
    return {.node = node,
            .parts = 4,
            .cost_elems = cost_elems,
            .body = run,
            .done = end,
            .context = this,
            .argument = argument};
  }
  void run_all() {
    while (loop.run_one()) {
    }
  }
};

TEST(VirtualExecutor, ANodeRestsBeforeItsNextTask) {
  Log log(1);
  const auto executor = make_virtual_executor(log.loop, {1, 1}, {1e6, 1e6});
  Task task = log.task(0, 1000, 0);
  task.rest_permille = 500;
  executor->post(task);
  executor->post(log.task(0, 1000, 1));
  executor->post(log.task(1, 1000, 2));
  log.run_all();
  executor->post(log.task(0, 1000, 3));
  log.run_all();
  EXPECT_EQ(log.done_ns[0], 1'000'000);
  EXPECT_EQ(log.done_ns[1], 2'500'000);
  EXPECT_EQ(log.done_ns[2], 1'000'000) << "another node does not rest";
  EXPECT_EQ(log.done_ns[3], 3'500'000) << "nor one after a task without a rest";
  EXPECT_EQ(executor->busy_ns(0), 3'000'000);
}

TEST(VirtualExecutor, NodesAreBusyForCostOverRateSideBySide) {
  Log log(1);
  const auto executor = make_virtual_executor(log.loop, {2, 2}, {1e6, 4e6});
  executor->post(log.task(0, 1000, 0));  // 1 ms, whatever the number of parts
  executor->post(log.task(0, 500, 1));   // 0.5 ms
  executor->post(log.task(1, 1000, 2));  // 0.25 ms on the faster node
  executor->post(log.task(1, 0, 3));
  log.run_all();
  EXPECT_EQ(log.done_ns[0], 1'000'000);
  EXPECT_EQ(log.done_ns[1], 1'500'000);
  EXPECT_EQ(log.done_ns[2], 250'000);
  EXPECT_EQ(log.done_ns[3], 250'000);
  EXPECT_EQ(executor->busy_ns(0), 1'500'000);
  EXPECT_EQ(executor->busy_ns(1), 250'000);
}

TEST(VirtualExecutor, IdleNodeStartsWhenATaskIsPosted) {
  Log log(1);
  const auto executor = make_virtual_executor(log.loop, {1}, {1e9});
  executor->post(log.task(0, 10, 0));
  log.run_all();
  log.loop.after(90, {[](void*, std::uint64_t) noexcept {}, nullptr, 0});
  log.run_all();
  EXPECT_EQ(log.loop.now(), 100);
  executor->post(log.task(0, 7, 1));
  log.run_all();
  EXPECT_EQ(log.done_ns[1], 107);
  EXPECT_EQ(executor->busy_ns(0), 17);
}

TEST(VirtualExecutor, RateZeroIsInstant) {
  Log log(1);
  const auto executor = make_virtual_executor(log.loop, {1}, {0.0});
  executor->post(log.task(0, 1'000'000, 0));
  EXPECT_EQ(log.body_ns[0], -1);  // not inside post
  log.run_all();
  EXPECT_EQ(log.done_ns[0], 0);
  EXPECT_EQ(executor->busy_ns(0), 0);
}

TEST(VirtualExecutor, NextTaskIsChosenWhenTheNodeGetsFree) {
  Log log(1);
  const auto executor = make_virtual_executor(log.loop, {1}, {1e9});
  executor->post(log.task(0, 100, 0));
  ASSERT_TRUE(log.loop.run_one());  // task 0 runs until 100
  Task late = log.task(0, 10, 1);
  late.priority = 5;
  Task early = log.task(0, 10, 2);
  early.priority = -5;
  executor->post(late);
  executor->post(early);
  log.run_all();
  EXPECT_EQ(log.done_ns[2], 110);
  EXPECT_EQ(log.done_ns[1], 120);
}

TEST(VirtualExecutor, SeedPicksStartOrEndForTheBodyAndReplays) {
  std::set<std::int64_t> times;
  for (std::uint64_t seed = 0; seed < 32; ++seed) {
    std::int64_t first_run = -1;
    for (int run = 0; run < 2; ++run) {
      Log log(seed);
      const auto executor = make_virtual_executor(log.loop, {1}, {1e9});
      executor->post(log.task(0, 100, 0));
      log.run_all();
      EXPECT_EQ(log.done_ns[0], 100);
      if (run == 0) first_run = log.body_ns[0];
      EXPECT_EQ(log.body_ns[0], first_run) << "seed " << seed;
    }
    times.insert(first_run);
  }
  EXPECT_EQ(times, (std::set<std::int64_t>{0, 100}));
}

TEST(VirtualExecutor, DropsItsTasksWhenItGoes) {
  Log log(1);
  auto executor = make_virtual_executor(log.loop, {1}, {1e9});
  executor->post(log.task(0, 100, 0));
  ASSERT_TRUE(log.loop.run_one());
  executor->post(log.task(0, 100, 1));
  executor.reset();
  log.run_all();
  EXPECT_EQ(log.done_ns[0], -1);
  EXPECT_EQ(log.body_ns[1], -1);
  EXPECT_EQ(log.loop.report(), "");
}

TEST(VirtualExecutor, ReportsWhatIsQueued) {
  Log log(1);
  const auto executor = make_virtual_executor(log.loop, {1, 1}, {1e9, 1e9});
  EXPECT_EQ(log.loop.report(), "");
  executor->post(log.task(1, 100, 0));
  ASSERT_TRUE(log.loop.run_one());
  Task waiting = log.task(1, 10, 1);
  waiting.priority = 7;
  executor->post(waiting);
  EXPECT_EQ(log.loop.report(),
            "executor node 1: running a task of priority 0, 1 queued, next has priority 7\n");
}

TEST(VirtualExecutor, NegativeRateIsRefused) {
  core::VirtualLoop loop(1);
  try {
    (void)make_virtual_executor(loop, {1, 1}, {1.0, -2.0});
    ADD_FAILURE() << "accepted a negative rate";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_NE(std::string(error.what()).find("node 1"), std::string::npos);
  }
}

}  // namespace
}  // namespace outboard::exec
