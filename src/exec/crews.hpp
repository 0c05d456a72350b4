// SPDX-License-Identifier: Apache-2.0
/// What the executors on real threads share: one crew for each node.
#pragma once

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "exec/executor.hpp"
#include "exec/node_crew.hpp"

namespace outboard::exec {

/// @throws Error{invalid_argument} unless there is one thread count >= 1 for each of `nodes`.
void check_thread_counts(std::size_t nodes, const std::vector<std::uint32_t>& threads_per_node);

/// Starts `threads` threads at once and lets them end, to find out whether the system gives as
/// many.
/// @throws Error{out_of_memory} if it refuses one.
void require_startable(std::size_t threads);

/// A derived class brings the threads with fill_crews(), some of them from elsewhere before that,
/// and calls stop() and join() before this class ends.
class CrewExecutor : public Executor {
 public:
  void post(const Task& task) noexcept final { crews_[task.node]->post(task); }
  void reserve(std::size_t tasks) final;
  void record_to(core::SpanRecorder& recorder) final;
  [[nodiscard]] std::uint32_t threads(std::uint32_t node) const noexcept final;
  [[nodiscard]] std::uint32_t nodes() const noexcept final;
  [[nodiscard]] std::int64_t busy_ns(std::uint32_t node) const noexcept final;
  [[nodiscard]] std::string notes() const final { return notes_; }
  [[nodiscard]] std::string binding_note() const final;

 protected:
  CrewExecutor(const topology::Machine& machine,
               const std::vector<std::uint32_t>& threads_per_node);

  /// For whoever lends a worker that may come only after this executor has ended.
  [[nodiscard]] const std::shared_ptr<NodeCrew>& crew(std::uint32_t node) const noexcept {
    return crews_[node];
  }
  void add_note(const std::string& line) { notes_ += line + "\n"; }
  /// Starts a thread of our own for every worker that is missing once nobody has come for
  /// `patience_seconds`, and waits for it. @return how many it started. @throws
  /// Error{out_of_memory} if the system refuses one; then stop() and join() are still to be called.
  std::uint32_t fill_crews(double patience_seconds);
  void stop() noexcept;
  /// Waits for the threads of fill_crews().
  void join() noexcept;

 private:
  void start_thread(NodeCrew& crew);

  std::vector<std::shared_ptr<NodeCrew>> crews_;
  std::vector<std::thread> threads_;
  std::string notes_;
};

}  // namespace outboard::exec
