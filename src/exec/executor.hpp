// SPDX-License-Identifier: Apache-2.0
/// Runs short tasks on the cores of a NUMA node. Three implementations, one conformance suite:
/// oneTBB, plain threads (ThreadSanitizer understands them), and virtual time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/span_recorder.hpp"
#include "core/virtual_loop.hpp"
#include "topology/machine.hpp"

namespace outboard::exec {

/// Memory traffic of one unit of Task::cost_elems: AdamW on a 16-bit gradient.
inline constexpr std::uint64_t kBytesPerCostElem = 28;

/// One piece of work for one node. Tasks of a node run one after the other, each split into `parts`
/// that the node's threads run at the same time; nodes run side by side.
struct Task {
  std::uint32_t node = 0;        ///< index into Machine::nodes
  std::int64_t priority = 0;     ///< lowest first among those waiting; equal: first posted first
  std::uint32_t parts = 1;       ///< >= 1
  std::uint64_t cost_elems = 0;  ///< virtual time: the node is busy for cost_elems / its rate
  /// Called once for each part in [0, parts), in the default floating-point environment. Part i
  /// always goes to the same thread of the node while the task has as many parts as there are
  /// threads. Must not wait.
  void (*body)(void* context, std::uint64_t argument, std::uint32_t part) noexcept = nullptr;
  /// Called once, after all parts, on a thread of the node, before the node's next task starts. May
  /// post. May be null.
  void (*done)(void* context, std::uint64_t argument) noexcept = nullptr;
  /// After it the node rests, before its next task, for this many thousandths of the time that its
  /// parts took.
  std::uint32_t rest_permille = 0;
  void* context = nullptr;
  std::uint64_t argument = 0;
  SpanKind kind = SpanKind::other;  ///< for recording, with `argument` as the index
};

class Executor {
 public:
  /// Waits until every posted task has run (virtual: drops tasks that the loop never reached).
  virtual ~Executor() = default;

  /// Queues a task. Any thread, also from inside a task; never blocks, never runs the task on the
  /// calling thread before it returns. Allocates nothing while at most reserve()d tasks are queued.
  virtual void post(const Task& task) noexcept = 0;
  /// Makes room for `tasks` queued tasks on every node.
  virtual void reserve(std::size_t tasks) = 0;
  /// Keeps a span of each task from now on: from its first body's start to its last one's end.
  /// `recorder` must outlive the executor.
  virtual void record_to(core::SpanRecorder& recorder) = 0;
  [[nodiscard]] virtual std::uint32_t threads(std::uint32_t node) const noexcept = 0;
  [[nodiscard]] virtual std::uint32_t nodes() const noexcept = 0;
  /// Nanoseconds the node has been running task bodies.
  [[nodiscard]] virtual std::int64_t busy_ns(std::uint32_t node) const noexcept = 0;
  [[nodiscard]] virtual const char* name() const noexcept = 0;
  /// "" or what is not as asked for about the source of threads. One line each.
  [[nodiscard]] virtual std::string notes() const = 0;
  /// "" or which nodes' threads could not be bound, and why the first of them.
  [[nodiscard]] virtual std::string binding_note() const = 0;
};

/// `threads_per_node[i]` threads (>= 1 each) for node i, bound to its cpus if the machine is real.
/// Both return when all threads are there; the same thread works for a node until the executor is
/// destroyed. oneTBB: the threads are workers of its pool, whose limit is raised for as long; if
/// somebody holds the limit lower the pool is left alone, threads of our own do the work, and
/// notes() says so.
/// @throws Error{invalid_argument} for a count of 0 or not one count per node;
/// Error{out_of_memory} if the system refuses a thread.
std::unique_ptr<Executor> make_tbb_executor(const topology::Machine& machine,
                                            const std::vector<std::uint32_t>& threads_per_node);
std::unique_ptr<Executor> make_thread_executor(const topology::Machine& machine,
                                               const std::vector<std::uint32_t>& threads_per_node);
/// Runs tasks on the loop, which must outlive it. `elems_per_s[i]`: rate of node i, 0 instant; the
/// time of a task is rounded to whole nanoseconds. The seed picks whether a task's body runs at the
/// start or at the end of the time it is charged; `done` is at the end.
/// @throws Error{invalid_argument} as above, or for a rate below 0.
std::unique_ptr<Executor> make_virtual_executor(core::VirtualLoop& loop,
                                                const std::vector<std::uint32_t>& threads_per_node,
                                                const std::vector<double>& elems_per_s);
/// The executor for real time that this build prefers: oneTBB, or plain threads in a build with
/// OUTBOARD_PLAIN_THREADS (ThreadSanitizer).
std::unique_ptr<Executor> make_default_executor(const topology::Machine& machine,
                                                const std::vector<std::uint32_t>& threads_per_node);

}  // namespace outboard::exec
