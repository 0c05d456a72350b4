// SPDX-License-Identifier: Apache-2.0
/// A few threads that share the tasks of one kernel.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace gpt {

/// Runs tasks on the caller's thread and `threads` - 1 of its own. Which thread runs which task is
/// left to chance, so a task may only write what is its own.
class Workers {
 public:
  /// @throws std::runtime_error if the system refuses a thread.
  explicit Workers(std::size_t threads);
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  [[nodiscard]] std::size_t count() const noexcept { return threads_.size() + 1; }

  /// Calls task(index, thread) for each index below `tasks`, with `thread` below count(); returns
  /// when all have. `task` must not throw. One caller at a time.
  template <class Task>
  void run(std::size_t tasks, const Task& task) {
    call_ = [](const void* context, std::size_t index, std::size_t thread) {
      (*static_cast<const Task*>(context))(index, thread);
    };
    context_ = &task;
    run_all(tasks);
  }

 private:
  void end_threads();
  void run_all(std::size_t tasks);
  void take_tasks(std::size_t thread);
  void work(std::size_t thread);

  void (*call_)(const void*, std::size_t, std::size_t) = nullptr;
  const void* context_ = nullptr;
  std::size_t tasks_ = 0;
  std::atomic<std::size_t> next_ = 0;

  std::mutex mutex_;
  std::condition_variable start_, done_;
  std::uint64_t round_ = 0;
  std::size_t busy_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace gpt
