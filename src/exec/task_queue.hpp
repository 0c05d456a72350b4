// SPDX-License-Identifier: Apache-2.0
/// The tasks that wait for one node, in the order in which they are to run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "exec/executor.hpp"

namespace outboard::exec {

/// Lowest priority first, equal ones in the order they were pushed. Not thread-safe. Allocates only
/// when it grows beyond what it has held or reserved.
class TaskQueue {
 public:
  void reserve(std::size_t tasks) { heap_.reserve(tasks); }
  void push(const Task& task);
  /// Not empty.
  [[nodiscard]] Task pop();
  void clear() noexcept { heap_.clear(); }
  [[nodiscard]] bool empty() const noexcept { return heap_.empty(); }
  [[nodiscard]] std::size_t size() const noexcept { return heap_.size(); }
  /// Not empty: what pop() would give.
  [[nodiscard]] const Task& next() const noexcept { return heap_.front().task; }

 private:
  struct Entry {
    std::uint64_t sequence;
    Task task;
  };
  static bool later(const Entry& left, const Entry& right) noexcept;

  std::vector<Entry> heap_;
  std::uint64_t sequence_ = 0;
};

}  // namespace outboard::exec
