// SPDX-License-Identifier: Apache-2.0
/// How the executor on oneTBB lives with other users of oneTBB in the process.
#include <gtest/gtest.h>
#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_arena.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "exec/rig.hpp"

namespace outboard::exec {
namespace {

struct Counter {
  std::atomic<int> parts = 0;
  std::atomic<int> finished = 0;
  static void run(void* context, std::uint64_t, std::uint32_t) noexcept {
    static_cast<Counter*>(context)->parts += 1;
  }
  static void end(void* context, std::uint64_t) noexcept {
    static_cast<Counter*>(context)->finished += 1;
  }
};

TEST(TbbExecutor, IsTheDefault) {
  const auto executor = make_default_executor(topology::synthetic("pu:1"), {1});
  EXPECT_STREQ(executor->name(), "tbb");
}

TEST(TbbExecutor, LeavesThePoolToWhoeverHoldsItsLimitLower) {
  const tbb::global_control limit(tbb::global_control::max_allowed_parallelism, 2);
  Counter counter;
  Rig rig(Kind::tbb, topology::synthetic("numa:2 core:3 pu:1"), 3);
  EXPECT_NE(rig->notes().find("limited to 2 threads"), std::string::npos) << rig->notes();
  for (std::uint32_t i = 0; i < 20; ++i) {
    rig->post({.node = i % 2,
               .parts = 3,
               .body = Counter::run,
               .done = Counter::end,
               .context = &counter});
  }
  rig.until([&] { return counter.finished == 20; });
  EXPECT_EQ(counter.parts, 60);
}

TEST(TbbExecutor, LeavesTheCallersOwnParallelLoopsTheirSize) {
  const int before = tbb::this_task_arena::max_concurrency();
  Rig rig(Kind::tbb, topology::synthetic("numa:2 core:2 pu:1"), 2);
  EXPECT_EQ(tbb::this_task_arena::max_concurrency(), before);
  std::atomic<int> sum = 0;
  tbb::parallel_for(0, 1000, [&](int i) { sum += i; });
  EXPECT_EQ(sum, 499500);
}

/// More threads than the pool has, held by executors that live side by side.
class Crowd {
 public:
  Crowd() {
    constexpr std::uint32_t kAll = 255;  // workers of the pool at its usual limit
    executors_.push_back(make_tbb_executor(machine_, {kAll - 3}));
    for (int i = 0; i < 3; ++i) executors_.push_back(make_tbb_executor(machine_, {3}));
  }
  /// Every executor that is left still runs what it is given.
  void use() {
    for (const auto& executor : executors_) {
      if (executor)
        executor->post(
            {.parts = 3, .body = Counter::run, .done = Counter::end, .context = &counter_});
    }
    const int left = static_cast<int>(
        std::count_if(executors_.begin(), executors_.end(), [](const auto& e) { return !!e; }));
    while (counter_.finished < left) std::this_thread::yield();
    EXPECT_EQ(counter_.parts.exchange(0), 3 * left);
    counter_.finished = 0;
  }
  void end(std::size_t index) {
    executors_[index].reset();
    use();
  }
  [[nodiscard]] std::size_t size() const noexcept { return executors_.size(); }
  [[nodiscard]] std::size_t on_their_own() const {
    return static_cast<std::size_t>(
        std::count_if(executors_.begin(), executors_.end(), [](const auto& executor) {
          return executor->notes().find("threads of its own") != std::string::npos;
        }));
  }

 private:
  const topology::Machine machine_ = topology::synthetic("core:4 pu:1");
  Counter counter_;
  std::vector<std::unique_ptr<Executor>> executors_;
};

// Those that no worker came to still have calls in the pool when they end.
TEST(TbbExecutor, EndsBeforeOthersThatHoldTheWholePool) {
  Crowd crowd;
  EXPECT_GE(crowd.on_their_own(), 2u);
  crowd.use();
  for (std::size_t i = crowd.size(); i > 0; --i) crowd.end(i - 1);
}

TEST(TbbExecutor, EndsAfterOthersThatHeldTheWholePool) {
  Crowd crowd;
  for (std::size_t i = 0; i < crowd.size(); ++i) crowd.end(i);
  Rig rig(Kind::tbb, topology::synthetic("core:4 pu:1"), 3);
  EXPECT_EQ(rig->notes(), "") << "the pool's workers came back";
}

// Workers go back to the pool that the whole process shares.
TEST(TbbExecutor, GivesItsWorkersTheirAffinityBack) {
  cpu_set_t own;
  ASSERT_EQ(sched_getaffinity(0, sizeof own, &own), 0);
  if (CPU_COUNT(&own) < 2) GTEST_SKIP() << "one cpu allowed: bound and unbound look alike";
  topology::Machine machine = topology::discover();
  machine.nodes.resize(1);
  machine.nodes[0].cpus.resize(1);
  { Rig rig(Kind::tbb, machine, 2); }
  const tbb::global_control room(tbb::global_control::max_allowed_parallelism, 8);
  std::atomic<int> narrow = 0;
  std::atomic<int> seen = 0;
  tbb::task_arena arena(2, 0);
  for (int i = 0; i < 2; ++i) {
    arena.enqueue([&] {
      cpu_set_t set;
      if (sched_getaffinity(0, sizeof set, &set) != 0 || CPU_COUNT(&set) < 2) narrow += 1;
      seen += 1;
    });
  }
  while (seen < 2) std::this_thread::yield();
  EXPECT_EQ(narrow, 0);
}

}  // namespace
}  // namespace outboard::exec
