// SPDX-License-Identifier: Apache-2.0
#include "update_bench/crew.hpp"

#include <chrono>
#include <latch>

namespace outboard::update_bench {
namespace {

struct Turn {
  core::FunctionRef<void(std::uint32_t, std::uint32_t)> body;
  std::latch finished;
};

}  // namespace

Crew::Crew(const topology::Machine& machine, const topology::ThreadChoice& choice)
    : threads_(choice.threads_per_node),
      why_(choice.why),
      executor_(exec::make_default_executor(machine, choice.threads_per_node)) {}

double Crew::run(core::FunctionRef<void(std::uint32_t, std::uint32_t)> body) {
  Turn turn{body, std::latch(static_cast<std::ptrdiff_t>(threads_.size()))};
  const auto start = std::chrono::steady_clock::now();
  for (std::uint32_t node = 0; node < threads_.size(); ++node) {
    exec::Task task;
    task.node = node;
    task.parts = threads_[node];
    task.context = &turn;
    task.argument = node;
    task.body = [](void* context, std::uint64_t where, std::uint32_t part) noexcept {
      static_cast<Turn*>(context)->body(static_cast<std::uint32_t>(where), part);
    };
    task.done = [](void* context, std::uint64_t) noexcept {
      static_cast<Turn*>(context)->finished.count_down();
    };
    executor_->post(task);
  }
  turn.finished.wait();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace outboard::update_bench
