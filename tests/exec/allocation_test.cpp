// SPDX-License-Identifier: Apache-2.0
/// Posting and running tasks allocates nothing once the executor is warm. Every thread's calls of
/// malloc count, also those of libraries; but not those of a worker that starts late.
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <cstdlib>
#include <string>
#include <thread>

#include "engine/allocation_counter.hpp"
#include "exec/rig.hpp"

namespace outboard::exec {
namespace {

class Allocation : public ::testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(Executors, Allocation, ::testing::ValuesIn(all_kinds()), name_of);

struct Relay {
  Executor* executor = nullptr;
  std::atomic<int> finished = 0;

  Task task(std::uint32_t node, std::uint64_t more) {
    return {.node = node,
            .priority = static_cast<std::int64_t>(more % 3),
            .parts = 3,
            .cost_elems = 5,
            .body = [](void*, std::uint64_t, std::uint32_t) noexcept {},
            .done = end,
            .context = this,
            .argument = more};
  }
  static void end(void* context, std::uint64_t more) noexcept {
    auto& self = *static_cast<Relay*>(context);
    if (more > 0) self.executor->post(self.task(static_cast<std::uint32_t>(more % 2), more - 1));
    self.finished += 1;
  }
};

void run_tasks(Rig& rig, Relay& relay) {
  relay.finished = 0;
  for (std::uint32_t i = 0; i < 100; ++i) rig->post(relay.task(i % 2, 9));
  rig.until([&relay] { return relay.finished == 1000; });
}

TEST_P(Allocation, NoneInAThousandTasksAfterWarmUp) {
  Relay relay;
  Rig rig(GetParam(), topology::synthetic("numa:2 core:2 pu:1"), 2);
  relay.executor = &*rig;
  rig->reserve(100);
  run_tasks(rig, relay);
  testing::start_counting();
  run_tasks(rig, relay);
  EXPECT_EQ(testing::stop_counting(), 0U) << testing::first_allocation();
}

TEST(Counting, SeesAnAllocation) {
  testing::start_counting();
  void* volatile plain = std::malloc(100);  // volatile: or the compiler drops the pair
  std::string* volatile owned = new std::string(100, 'x');
  delete owned;
  std::free(plain);
  EXPECT_GE(testing::stop_counting(), 2U);
}

void* allocate_and_give_back(void* /*unused*/) {
  std::free(std::malloc(100));
  return nullptr;
}

TEST(Counting, LeavesOutWhatALateThreadTakes) {
  testing::start_counting();
  pthread_t late{};
  ASSERT_EQ(pthread_create(&late, nullptr, allocate_and_give_back, nullptr), 0);
  pthread_join(late, nullptr);
  EXPECT_EQ(testing::stop_counting(), 0U) << testing::first_allocation();
}

/// A thread that worked before counts, and so does what it is told to do.
TEST(Counting, SeesAnAllocationOfAnEarlierThread) {
  std::atomic<int> stage = 0;
  std::thread early([&stage] {
    void* volatile first = std::malloc(100);
    std::free(first);
    stage = 1;
    while (stage != 2) std::this_thread::yield();
    void* volatile second = std::malloc(100);
    std::free(second);
  });
  while (stage != 1) std::this_thread::yield();
  testing::start_counting();
  stage = 2;
  early.join();
  EXPECT_GE(testing::stop_counting(), 1U);
}

}  // namespace
}  // namespace outboard::exec
