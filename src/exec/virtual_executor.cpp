// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <string>

#include "exec/crews.hpp"
#include "exec/fp_environment.hpp"
#include "exec/task_queue.hpp"
#include "outboard/error.hpp"

namespace outboard::exec {
namespace {

struct VirtualState;

struct VirtualNode {
  VirtualState* state = nullptr;
  std::uint32_t index = 0;
  std::uint32_t threads = 1;
  double elems_per_s = 0.0;
  TaskQueue queue;
  Task task;               ///< valid while `running`
  bool due = false;        ///< an event of this node is in the loop
  bool running = false;    ///< ... and it ends `task`; otherwise it starts the queue's next
  bool body_last = false;  ///< the body of `task` is still to run
  std::int64_t busy_ns = 0;
};

/// What the loop's events point to. Shared with the loop, by way of the reporter: the loop cannot
/// forget an event, and one may fall due after the executor is gone.
struct VirtualState {
  core::VirtualLoop& loop;
  std::vector<VirtualNode> nodes;
  std::uint64_t reporter = 0;
  bool dropped = false;  ///< the executor is gone
};

void run_body(const Task& task) noexcept {
  const DefaultFpEnvironment environment;
  for (std::uint32_t part = 0; part < task.parts; ++part) {
    task.body(task.context, task.argument, part);
  }
}

void run_done(const Task& task) noexcept {
  const DefaultFpEnvironment environment;
  if (task.done != nullptr) task.done(task.context, task.argument);
}

void on_event(void* context, std::uint64_t) noexcept;

void schedule(VirtualNode& node, std::int64_t delay_ns) {
  node.due = true;
  node.state->loop.after(delay_ns, {on_event, &node, 0});
}

std::int64_t duration_ns(const VirtualNode& node, const Task& task) noexcept {
  if (node.elems_per_s <= 0.0) return 0;
  return std::llround(static_cast<double>(task.cost_elems) * 1e9 / node.elems_per_s);
}

void start_next(VirtualNode& node) {
  node.task = node.queue.pop();
  node.running = true;
  node.body_last = node.state->loop.random_below(2) == 1;
  if (!node.body_last) run_body(node.task);
  const std::int64_t cost_ns = duration_ns(node, node.task);
  node.busy_ns += cost_ns;
  schedule(node, cost_ns);
}

void finish(VirtualNode& node) {
  if (node.body_last) run_body(node.task);
  run_done(node.task);
  node.running = false;
}

/// The executor is gone; its last event takes the state along.
void forget_if_last(VirtualState& state) noexcept {
  for (const VirtualNode& node : state.nodes) {
    if (node.due) return;
  }
  state.loop.remove_reporter(state.reporter);  // destroys `state`
}

void on_event(void* context, std::uint64_t) noexcept {
  VirtualNode& node = *static_cast<VirtualNode*>(context);
  node.due = false;
  if (node.state->dropped) return forget_if_last(*node.state);
  // `due` again: a task posted by body or done must not start the node a second time.
  node.due = true;
  if (node.running) finish(node);
  node.due = false;
  if (node.state->dropped) return forget_if_last(*node.state);
  if (node.queue.empty()) return;
  node.due = true;
  start_next(node);
}

void describe(const VirtualState& state, std::string& text) {
  if (state.dropped) return;
  for (const VirtualNode& node : state.nodes) {
    if (!node.due && node.queue.empty()) continue;
    text += "executor node " + std::to_string(node.index) + ": " +
            (node.running ? "task running (priority " + std::to_string(node.task.priority) + "), "
                          : std::string()) +
            std::to_string(node.queue.size()) + " queued";
    if (!node.queue.empty()) {
      text += ", next has priority " + std::to_string(node.queue.next().priority);
    }
    text += "\n";
  }
}

class VirtualExecutor final : public Executor {
 public:
  VirtualExecutor(core::VirtualLoop& loop, const std::vector<std::uint32_t>& threads_per_node,
                  const std::vector<double>& elems_per_s)
      : state_(std::make_shared<VirtualState>(VirtualState{.loop = loop, .nodes = {}})) {
    check_thread_counts(elems_per_s.size(), threads_per_node);
    state_->nodes.resize(threads_per_node.size());
    for (std::uint32_t i = 0; i < state_->nodes.size(); ++i) {
      VirtualNode& node = state_->nodes[i];
      if (!(elems_per_s[i] >= 0.0)) {
        throw Error(ErrorCode::invalid_argument, "executor: rate of node " + std::to_string(i) +
                                                     " is " + std::to_string(elems_per_s[i]) +
                                                     " elements/s; it must be >= 0");
      }
      node.state = state_.get();
      node.index = i;
      node.threads = threads_per_node[i];
      node.elems_per_s = elems_per_s[i];
    }
    state_->reporter =
        loop.add_reporter([state = state_](std::string& text) { describe(*state, text); });
  }
  ~VirtualExecutor() override {
    state_->dropped = true;
    for (VirtualNode& node : state_->nodes) node.queue.clear();
    forget_if_last(*state_);
  }

  void post(const Task& task) noexcept override {
    VirtualNode& node = state_->nodes[task.node];
    node.queue.push(task);
    if (!node.due) schedule(node, 0);
  }
  void reserve(std::size_t tasks) override {
    for (VirtualNode& node : state_->nodes) node.queue.reserve(tasks);
  }
  [[nodiscard]] std::uint32_t threads(std::uint32_t node) const noexcept override {
    return state_->nodes[node].threads;
  }
  [[nodiscard]] std::uint32_t nodes() const noexcept override {
    return static_cast<std::uint32_t>(state_->nodes.size());
  }
  [[nodiscard]] std::int64_t busy_ns(std::uint32_t node) const noexcept override {
    return state_->nodes[node].busy_ns;
  }
  [[nodiscard]] const char* name() const noexcept override { return "virtual"; }
  [[nodiscard]] std::string notes() const override { return ""; }

 private:
  std::shared_ptr<VirtualState> state_;
};

}  // namespace

std::unique_ptr<Executor> make_virtual_executor(core::VirtualLoop& loop,
                                                const std::vector<std::uint32_t>& threads_per_node,
                                                std::vector<double> elems_per_s) {
  return std::make_unique<VirtualExecutor>(loop, threads_per_node, elems_per_s);
}

}  // namespace outboard::exec
