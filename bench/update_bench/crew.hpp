// SPDX-License-Identifier: Apache-2.0
/// The threads that the engine would update with, and a clock around them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/function_ref.hpp"
#include "exec/executor.hpp"
#include "topology/machine.hpp"

namespace outboard::update_bench {

class Crew {
 public:
  /// @throws what exec::make_default_executor() does.
  Crew(const topology::Machine& machine, const topology::ThreadChoice& choice);

  /// Calls `body(node, part)` once on every thread of every node, part i of a node always on the
  /// same thread, and waits for all. @return seconds from handing out to the last one's return.
  double run(core::FunctionRef<void(std::uint32_t, std::uint32_t)> body);

  [[nodiscard]] const std::vector<std::uint32_t>& threads_per_node() const noexcept {
    return threads_;
  }
  /// In words: how many, and why.
  [[nodiscard]] const std::string& why() const noexcept { return why_; }
  [[nodiscard]] const exec::Executor& executor() const noexcept { return *executor_; }

 private:
  std::vector<std::uint32_t> threads_;
  std::string why_;
  std::unique_ptr<exec::Executor> executor_;
};

}  // namespace outboard::update_bench
