// SPDX-License-Identifier: Apache-2.0
#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/task_arena.h>

#include <algorithm>
#include <deque>
#include <numeric>

#include "exec/crews.hpp"

namespace outboard::exec {
namespace {

constexpr auto kLimit = tbb::global_control::max_allowed_parallelism;

/// oneTBB divides one limit among all arenas and takes the lowest that anybody asks for. A generous
/// one lets several executors live side by side; implicit arenas keep their own size.
std::size_t generous_limit(const std::vector<std::uint32_t>& threads_per_node) {
  constexpr std::size_t kRoom = 256;  // oneTBB's own bound on a small machine
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
      : CrewExecutor(machine, threads_per_node), limit_(kLimit, generous_limit(threads_per_node)) {
    try {
      hire(generous_limit(threads_per_node));
    } catch (...) {
      let_go();
      throw;
    }
  }
  ~TbbExecutor() override { let_go(); }

  [[nodiscard]] const char* name() const noexcept override { return "tbb"; }

 private:
  void hire(std::size_t limit) {
    const std::size_t active = tbb::global_control::active_value(kLimit);
    if (active < limit) {
      // Lending the few workers would leave none to whoever set the limit.
      add_note("oneTBB is limited to " + std::to_string(active) +
               " threads in this process; the executor uses threads of its own");
      fill_crews(0.0);
      return;
    }
    // oneTBB ends the process where the system refuses it a thread.
    std::size_t all = 0;
    for (std::uint32_t node = 0; node < nodes(); ++node) all += threads(node);
    require_startable(all);
    for (std::uint32_t node = 0; node < nodes(); ++node) lend_workers(node);
    constexpr double kPatienceSeconds = 1.0;  // the next comes within milliseconds, or never
    const std::uint32_t own = fill_crews(kPatienceSeconds);
    if (own > 0) {
      add_note("oneTBB's workers are busy elsewhere; the executor uses " + std::to_string(own) +
               " threads of its own");
    }
  }

  void lend_workers(std::uint32_t node) {
    tbb::task_arena& arena = arenas_.emplace_back(static_cast<int>(threads(node)), 0u);
    // A call that no worker had time for waits in the arena until other crews let theirs go, which
    // may be long after this executor's end.
    for (std::uint32_t i = 0; i < threads(node); ++i) {
      arena.enqueue([workplace = crew(node)] { workplace->work(); });
    }
  }

  void let_go() noexcept {
    stop();
    join();
    for (std::uint32_t node = 0; node < nodes(); ++node) crew(node)->wait_until_gone();
  }

  tbb::global_control limit_;
  std::deque<tbb::task_arena> arenas_;
};

}  // namespace

std::unique_ptr<Executor> make_tbb_executor(const topology::Machine& machine,
                                            const std::vector<std::uint32_t>& threads_per_node) {
  return std::make_unique<TbbExecutor>(machine, threads_per_node);
}

}  // namespace outboard::exec
