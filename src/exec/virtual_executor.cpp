// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <string>

#include "core/show_number.hpp"
#include "exec/crews.hpp"
#include "exec/run_task.hpp"
#include "exec/task_queue.hpp"
#include "outboard/error.hpp"

namespace outboard::exec {
namespace {

struct VirtualNode {
  core::VirtualLoop* loop = nullptr;
  std::uint32_t index = 0;
  std::uint32_t threads = 1;
  double elems_per_s = 0.0;
  TaskQueue queue;
  Task task;               ///< valid while `running`
  bool due = false;        ///< an event of this node is in the loop, or being handled
  bool running = false;    ///< it ends `task`; otherwise it starts the queue's next
  bool body_last = false;  ///< the body of `task` is still to run
  std::int64_t busy_ns = 0;
  core::SpanRecorder* recorder = nullptr;
};

void run_body(const Task& task) noexcept {
  for (std::uint32_t part = 0; part < task.parts; ++part) run_part(task, part);
}

void on_event(void* context, std::uint64_t) noexcept;

void schedule(VirtualNode& node, std::int64_t delay_ns) {
  node.due = true;
  node.loop->after(delay_ns, {on_event, &node, 0});
}

std::int64_t duration_ns(const VirtualNode& node, const Task& task) noexcept {
  if (node.elems_per_s <= 0.0) return 0;
  return std::llround(static_cast<double>(task.cost_elems) * 1e9 / node.elems_per_s);
}

void start_next(VirtualNode& node) {
  node.task = node.queue.pop();
  node.running = true;
  node.body_last = node.loop->random_below(2) == 1;
  if (!node.body_last) run_body(node.task);
  const std::int64_t cost_ns = duration_ns(node, node.task);
  node.busy_ns += cost_ns;
  record_task(node.recorder, node.task, {node.loop->now(), node.loop->now() + cost_ns});
  schedule(node, cost_ns);
}

/// @return how long the node rests then.
std::int64_t finish(VirtualNode& node) {
  if (node.body_last) run_body(node.task);
  run_done(node.task);
  node.running = false;
  return rest_ns(node.task, duration_ns(node, node.task));
}

/// `due` stays set throughout: a task that body or done posts must not start the node once more.
void on_event(void* context, std::uint64_t) noexcept {
  VirtualNode& node = *static_cast<VirtualNode*>(context);
  const std::int64_t rest = node.running ? finish(node) : 0;
  if (rest > 0) {
    schedule(node, rest);
  } else if (node.queue.empty()) {
    node.due = false;
  } else {
    start_next(node);
  }
}

void describe(const VirtualNode& node, std::string& text) {
  if (!node.due) return;
  text += "executor node " + std::to_string(node.index) + ": ";
  if (node.running)
    text += "running a task of priority " + std::to_string(node.task.priority) + ", ";
  text += std::to_string(node.queue.size()) + " queued";
  if (!node.queue.empty()) {
    text += ", next has priority " + std::to_string(node.queue.next().priority);
  }
  text += "\n";
}

void check_rate(std::uint32_t node, double elems_per_s) {
  if (elems_per_s >= 0.0) return;  // false for NaN as well
  throw Error(ErrorCode::invalid_argument, "executor: rate of node " + std::to_string(node) +
                                               " is " + core::show_number(elems_per_s) +
                                               " elements/s; it must be >= 0");
}

class VirtualExecutor final : public Executor {
 public:
  VirtualExecutor(core::VirtualLoop& loop, const std::vector<std::uint32_t>& threads_per_node,
                  const std::vector<double>& elems_per_s)
      : loop_(loop), nodes_(elems_per_s.size()) {
    check_thread_counts(elems_per_s.size(), threads_per_node);
    for (std::uint32_t i = 0; i < nodes_.size(); ++i) {
      check_rate(i, elems_per_s[i]);
      nodes_[i].loop = &loop;
      nodes_[i].index = i;
      nodes_[i].threads = threads_per_node[i];
      nodes_[i].elems_per_s = elems_per_s[i];
    }
    reporter_ = loop.add_reporter([this](std::string& text) {
      for (const VirtualNode& node : nodes_) describe(node, text);
    });
  }
  ~VirtualExecutor() override {
    loop_.remove_reporter(reporter_);
    for (const VirtualNode& node : nodes_) loop_.forget(&node);
  }
  VirtualExecutor(const VirtualExecutor&) = delete;
  VirtualExecutor& operator=(const VirtualExecutor&) = delete;

  void post(const Task& task) noexcept override {
    VirtualNode& node = nodes_[task.node];
    node.queue.push(task);
    if (!node.due) schedule(node, 0);
  }
  void reserve(std::size_t tasks) override {
    for (VirtualNode& node : nodes_) node.queue.reserve(tasks);
  }
  void record_to(core::SpanRecorder& recorder) override {
    for (VirtualNode& node : nodes_) node.recorder = &recorder;
  }
  [[nodiscard]] std::uint32_t threads(std::uint32_t node) const noexcept override {
    return nodes_[node].threads;
  }
  [[nodiscard]] std::uint32_t nodes() const noexcept override {
    return static_cast<std::uint32_t>(nodes_.size());
  }
  [[nodiscard]] std::int64_t busy_ns(std::uint32_t node) const noexcept override {
    return nodes_[node].busy_ns;
  }
  [[nodiscard]] const char* name() const noexcept override { return "virtual"; }
  [[nodiscard]] std::string notes() const override { return ""; }
  [[nodiscard]] std::string binding_note() const override { return ""; }

 private:
  core::VirtualLoop& loop_;
  std::vector<VirtualNode> nodes_;
  std::uint64_t reporter_ = 0;
};

}  // namespace

std::unique_ptr<Executor> make_virtual_executor(core::VirtualLoop& loop,
                                                const std::vector<std::uint32_t>& threads_per_node,
                                                const std::vector<double>& elems_per_s) {
  return std::make_unique<VirtualExecutor>(loop, threads_per_node, elems_per_s);
}

}  // namespace outboard::exec
