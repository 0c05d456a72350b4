// SPDX-License-Identifier: Apache-2.0
#include "exec/task_queue.hpp"

#include <algorithm>

namespace outboard::exec {

bool TaskQueue::later(const Entry& left, const Entry& right) noexcept {
  if (left.task.priority != right.task.priority) return left.task.priority > right.task.priority;
  return left.sequence > right.sequence;
}

void TaskQueue::push(const Task& task) {
  heap_.push_back({sequence_++, task});
  std::push_heap(heap_.begin(), heap_.end(), later);
}

Task TaskQueue::pop() {
  std::pop_heap(heap_.begin(), heap_.end(), later);
  const Task task = heap_.back().task;
  heap_.pop_back();
  return task;
}

}  // namespace outboard::exec
