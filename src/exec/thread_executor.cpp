// SPDX-License-Identifier: Apache-2.0
#include "exec/crews.hpp"

namespace outboard::exec {
namespace {

class ThreadExecutor final : public CrewExecutor {
 public:
  ThreadExecutor(const topology::Machine& machine,
                 const std::vector<std::uint32_t>& threads_per_node)
      : CrewExecutor(machine, threads_per_node) {
    try {
      fill_crews(0.0);
    } catch (...) {
      let_go();
      throw;
    }
  }
  ~ThreadExecutor() override { let_go(); }

  [[nodiscard]] const char* name() const noexcept override { return "threads"; }

 private:
  void let_go() noexcept {
    stop();
    join();
  }
};

}  // namespace

std::unique_ptr<Executor> make_thread_executor(const topology::Machine& machine,
                                               const std::vector<std::uint32_t>& threads_per_node) {
  return std::make_unique<ThreadExecutor>(machine, threads_per_node);
}

}  // namespace outboard::exec
