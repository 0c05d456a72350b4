// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <system_error>
#include <thread>

#include "exec/crews.hpp"
#include "outboard/error.hpp"

namespace outboard::exec {
namespace {

class ThreadExecutor final : public CrewExecutor {
 public:
  ThreadExecutor(const topology::Machine& machine,
                 const std::vector<std::uint32_t>& threads_per_node)
      : CrewExecutor(machine, threads_per_node) {
    std::size_t total = 0;
    for (const std::uint32_t count : threads_per_node) total += count;
    threads_.reserve(total);
    try {
      for (std::uint32_t node = 0; node < nodes(); ++node) {
        NodeCrew& crew = this->crew(node);
        for (std::uint32_t i = 0; i < crew.workers(); ++i) {
          threads_.emplace_back([&crew] { crew.work(); });
        }
      }
    } catch (const std::system_error& error) {
      join();
      throw Error(ErrorCode::out_of_memory,
                  "executor: thread " + std::to_string(threads_.size() + 1) + " could not start: " +
                      error.what() + "; raise the limit of threads (ulimit -u, container pids)");
    }
    wait_for_workers();
  }
  ~ThreadExecutor() override { join(); }

  [[nodiscard]] const char* name() const noexcept override { return "threads"; }

 private:
  void join() noexcept {
    stop();
    for (std::thread& thread : threads_) thread.join();
  }

  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<Executor> make_thread_executor(const topology::Machine& machine,
                                               const std::vector<std::uint32_t>& threads_per_node) {
  return std::make_unique<ThreadExecutor>(machine, threads_per_node);
}

}  // namespace outboard::exec
