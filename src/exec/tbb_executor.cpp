// SPDX-License-Identifier: Apache-2.0
#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/task_arena.h>

#include <algorithm>
#include <deque>
#include <numeric>

#include "exec/crews.hpp"

namespace outboard::exec {
namespace {

/// oneTBB divides one limit among all arenas and takes the lowest that anybody asks for. A generous
/// one lets several executors live side by side; implicit arenas keep their own size.
std::size_t worker_limit(const std::vector<std::uint32_t>& threads_per_node) {
  constexpr std::size_t kRoom = 256;
  const std::size_t total =
      std::accumulate(threads_per_node.begin(), threads_per_node.end(), std::size_t{0});
  return std::max(kRoom, total + 1);  // the limit counts one thread that is not a worker
}

/// One arena for each node, without a place for the posting thread. Every worker is lent to its
/// crew for the executor's life: only so does a part meet the same thread every time, and posting
/// needs no allocation.
class TbbExecutor final : public CrewExecutor {
 public:
  TbbExecutor(const topology::Machine& machine, const std::vector<std::uint32_t>& threads_per_node)
      : CrewExecutor(machine, threads_per_node),
        limit_(tbb::global_control::max_allowed_parallelism, worker_limit(threads_per_node)) {
    for (std::uint32_t node = 0; node < nodes(); ++node) {
      tbb::task_arena& arena = arenas_.emplace_back(static_cast<int>(threads(node)), 0u);
      NodeCrew& crew = this->crew(node);
      for (std::uint32_t i = 0; i < threads(node); ++i) {
        arena.enqueue([&crew] { crew.work(); });
      }
    }
    wait_for_workers();
  }
  /// A worker that never came still finds its call in the arena, once the others have left theirs.
  ~TbbExecutor() override {
    stop();
    wait_until_gone();
  }

  [[nodiscard]] const char* name() const noexcept override { return "tbb"; }

 private:
  tbb::global_control limit_;
  std::deque<tbb::task_arena> arenas_;
};

}  // namespace

std::unique_ptr<Executor> make_tbb_executor(const topology::Machine& machine,
                                            const std::vector<std::uint32_t>& threads_per_node) {
  return std::make_unique<TbbExecutor>(machine, threads_per_node);
}

}  // namespace outboard::exec
