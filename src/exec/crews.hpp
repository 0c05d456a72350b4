// SPDX-License-Identifier: Apache-2.0
/// What the executors on real threads share: one crew for each node.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "exec/executor.hpp"
#include "exec/node_crew.hpp"

namespace outboard::exec {

/// @throws Error{invalid_argument} unless there is one thread count >= 1 for each of `nodes`.
void check_thread_counts(std::size_t nodes, const std::vector<std::uint32_t>& threads_per_node);

/// A derived class provides the threads, and lets them go before this class ends.
class CrewExecutor : public Executor {
 public:
  void post(const Task& task) noexcept final { crews_[task.node]->post(task); }
  void reserve(std::size_t tasks) final;
  [[nodiscard]] std::uint32_t threads(std::uint32_t node) const noexcept final;
  [[nodiscard]] std::uint32_t nodes() const noexcept final;
  [[nodiscard]] std::int64_t busy_ns(std::uint32_t node) const noexcept final;
  [[nodiscard]] std::string notes() const final;

 protected:
  CrewExecutor(const topology::Machine& machine,
               const std::vector<std::uint32_t>& threads_per_node);

  [[nodiscard]] NodeCrew& crew(std::uint32_t node) noexcept { return *crews_[node]; }
  /// Blocks until the workers have come, or for a few seconds: then notes() names who is missing.
  void wait_for_workers();
  void stop() noexcept;
  void wait_until_gone() noexcept;

 private:
  std::vector<std::unique_ptr<NodeCrew>> crews_;
  std::string missing_;
};

}  // namespace outboard::exec
