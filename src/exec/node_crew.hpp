// SPDX-License-Identifier: Apache-2.0
/// The threads of one node and what they do: take the node's tasks one at a time, together.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "exec/task_queue.hpp"
#include "topology/machine.hpp"

namespace outboard::exec {

/// Owns no thread: whoever provides threads lets `workers` of them call work(). Part i of a task
/// goes to worker i mod workers, counted among the workers that have come. Thread-safe.
class NodeCrew {
 public:
  /// `machine` is copied for the workers' binding.
  NodeCrew(const topology::Machine& machine, std::uint32_t node, std::uint32_t workers);

  /// Allocates nothing while the queue has room.
  void post(const Task& task) noexcept;
  void reserve(std::size_t tasks);
  void record_to(core::SpanRecorder& recorder);

  /// Makes the calling thread a worker, bound to the node, until stop() and an empty queue; then
  /// gives it back its affinity. Returns at once if the crew is complete, or has stopped and is
  /// done: whoever may come that late must hold a share of this object.
  void work() noexcept;
  /// Blocks until all workers have come, or nobody more has for `seconds`. @return how many came.
  std::uint32_t wait_for_workers(double seconds);
  /// The same, for as long as it takes.
  void wait_for_workers();
  /// Lets the workers go once the queue is empty. Does not wait for that.
  void stop() noexcept;
  /// Blocks until the queue is empty and every worker has its affinity back. A call of work() that
  /// comes later still finds nothing to do. After stop().
  void wait_until_gone() noexcept;

  [[nodiscard]] std::uint32_t workers() const noexcept { return workers_; }
  [[nodiscard]] std::int64_t busy_ns() const noexcept;
  /// "" or why a worker could not be bound.
  [[nodiscard]] std::string binding_note() const;

 private:
  struct Running {
    Task task;
    std::uint64_t turn = 0;        ///< counts tasks, from 1
    std::uint32_t lanes = 0;       ///< workers that take part: the first ones
    std::uint32_t unfinished = 0;  ///< of the lanes
    bool active = false;
    std::int64_t started_ns = -1;  ///< -1: no body has started
  };

  void start_next() noexcept;
  void run_lane(std::unique_lock<std::mutex>& lock, std::uint32_t worker) noexcept;
  void finish(std::unique_lock<std::mutex>& lock, std::uint32_t worker) noexcept;
  void rest(std::unique_lock<std::mutex>& lock, std::uint32_t worker, std::int64_t ns) noexcept;
  void serve(std::uint32_t worker) noexcept;
  [[nodiscard]] bool enter() noexcept;
  void serve_bound() noexcept;
  [[nodiscard]] bool drained() const noexcept;

  const topology::Machine machine_;
  const std::uint32_t node_;
  const std::uint32_t workers_;
  std::unique_ptr<std::condition_variable[]> wake_;  ///< one for each worker
  std::condition_variable changed_;                  ///< somebody came or went
  mutable std::mutex mutex_;
  TaskQueue queue_;
  Running running_;
  std::uint32_t entered_ = 0;  ///< have a place
  std::uint32_t came_ = 0;     ///< of those: are bound, and take part
  std::uint32_t gone_ = 0;
  bool stopping_ = false;
  std::int64_t busy_ns_ = 0;
  std::string binding_note_;
  core::SpanRecorder* recorder_ = nullptr;
};

}  // namespace outboard::exec
