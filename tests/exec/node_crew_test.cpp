// SPDX-License-Identifier: Apache-2.0
#include "exec/node_crew.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

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
  Task task() { return {.parts = 4, .body = run, .done = end, .context = this}; }
};

TEST(NodeCrew, TasksWaitForTheFirstWorkerAndRunOnThoseThatCame) {
  Counter counter;
  NodeCrew crew(topology::synthetic("core:3 pu:1"), 0, 3);
  for (int i = 0; i < 10; ++i) crew.post(counter.task());
  EXPECT_EQ(counter.parts, 0);
  EXPECT_EQ(crew.wait_for_workers(0.0), 0u);
  std::jthread lonely([&] { crew.work(); });
  while (counter.finished < 10) std::this_thread::yield();
  EXPECT_EQ(crew.wait_for_workers(0.0), 1u);
  crew.stop();
  lonely.join();
  EXPECT_EQ(counter.parts, 40);
  EXPECT_EQ(counter.finished, 10);
}

TEST(NodeCrew, SurplusWorkersLeaveAtOnce) {
  Counter counter;
  NodeCrew crew(topology::synthetic("core:2 pu:1"), 0, 2);
  std::vector<std::jthread> workers;
  for (int i = 0; i < 2; ++i) workers.emplace_back([&] { crew.work(); });
  crew.wait_for_workers();
  crew.work();  // would block until stop() as a worker
  crew.post(counter.task());
  crew.stop();
  crew.work();
  crew.wait_until_gone();
  EXPECT_EQ(counter.parts, 4);
}

// Each task would be followed by an hour's rest.
TEST(NodeCrew, DoesNotRestOnceItIsToEnd) {
  Counter counter;
  NodeCrew crew(topology::synthetic("core:2 pu:1"), 0, 2);
  std::vector<std::jthread> workers;
  for (int i = 0; i < 2; ++i) workers.emplace_back([&] { crew.work(); });
  crew.wait_for_workers();
  Task task = counter.task();
  task.body = [](void* context, std::uint64_t, std::uint32_t) noexcept {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    static_cast<Counter*>(context)->parts += 1;
  };
  task.rest_permille = 4'000'000'000;
  for (int i = 0; i < 3; ++i) crew.post(task);
  while (counter.finished < 1) std::this_thread::yield();
  EXPECT_EQ(counter.finished, 1);
  crew.stop();
  crew.wait_until_gone();
  EXPECT_EQ(counter.parts, 12);
  EXPECT_EQ(counter.finished, 3);
}

TEST(NodeCrew, WhoeverComesAfterTheEndIsNotWaitedFor) {
  Counter counter;
  auto crew = std::make_shared<NodeCrew>(topology::synthetic("core:2 pu:1"), 0, 2);
  std::jthread late([mine = crew, &counter] {
    while (counter.finished < 2) std::this_thread::yield();
    mine->work();
    counter.finished += 1;
  });
  std::jthread worker([&crew] { crew->work(); });
  crew->post(counter.task());
  while (counter.finished < 1) std::this_thread::yield();
  crew->stop();
  crew->wait_until_gone();
  worker.join();
  crew.reset();
  counter.finished += 1;
  while (counter.finished < 3) std::this_thread::yield();
  EXPECT_EQ(counter.parts, 4);
}

TEST(NodeCrew, LateWorkersServeWhatWasPostedBeforeStop) {
  Counter counter;
  NodeCrew crew(topology::synthetic("core:2 pu:1"), 0, 2);
  crew.post(counter.task());
  crew.stop();
  crew.work();
  EXPECT_EQ(counter.finished, 1);
}

}  // namespace
}  // namespace outboard::exec
