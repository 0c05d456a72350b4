// SPDX-License-Identifier: Apache-2.0
#include "exec/task_queue.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace outboard::exec {
namespace {

TEST(TaskQueue, LowestPriorityFirstAndFirstComeAmongEquals) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  TaskQueue queue;
  std::vector<Task> expected;
  for (std::uint64_t i = 0; i < 500; ++i) {
    const Task task{.priority = static_cast<std::int64_t>(random() % 7) - 3, .argument = i};
    queue.push(task);
    expected.push_back(task);
  }
  std::stable_sort(expected.begin(), expected.end(), [](const Task& left, const Task& right) {
    return left.priority < right.priority;
  });
  for (const Task& task : expected) {
    EXPECT_EQ(queue.next().argument, task.argument);
    EXPECT_EQ(queue.pop().argument, task.argument);
  }
  EXPECT_TRUE(queue.empty());
}

}  // namespace
}  // namespace outboard::exec
