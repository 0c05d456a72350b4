// SPDX-License-Identifier: Apache-2.0
/// When a pipeline tries how fast the nodes of a real machine are.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "exec/executor.hpp"
#include "outboard/sim.hpp"
#include "pipeline/step.hpp"
#include "topology/machine.hpp"

namespace outboard::testing {
namespace {

/// Counts the tasks of an executor of real threads.
class CountingExecutor final : public exec::Executor {
 public:
  explicit CountingExecutor(const topology::Machine& machine)
      : threads_(exec::make_thread_executor(machine, {1, 1})) {}
  void post(const exec::Task& task) noexcept override {
    ++tasks_;
    threads_->post(task);
  }
  void reserve(std::size_t tasks) override { threads_->reserve(tasks); }
  void record_to(core::SpanRecorder& recorder) override { threads_->record_to(recorder); }
  std::uint32_t threads(std::uint32_t node) const noexcept override {
    return threads_->threads(node);
  }
  std::uint32_t nodes() const noexcept override { return threads_->nodes(); }
  std::int64_t busy_ns(std::uint32_t node) const noexcept override {
    return threads_->busy_ns(node);
  }
  const char* name() const noexcept override { return threads_->name(); }
  std::string notes() const override { return threads_->notes(); }
  std::string binding_note() const override { return threads_->binding_note(); }
  [[nodiscard]] int tasks() const noexcept { return tasks_; }

 private:
  std::unique_ptr<exec::Executor> threads_;
  std::atomic<int> tasks_{0};
};

/// Two nodes that share what this machine has. Memory is bound to neither.
topology::Machine two_real_nodes() {
  topology::Machine machine = topology::discover();
  machine.nodes.resize(1);
  machine.nodes.push_back(machine.nodes.front());
  machine.memory_nodes.clear();
  machine.distances.clear();
  machine.numa_known = false;
  return machine;
}

constexpr std::uint64_t kElems = 700'000;  // enough for a trial on two nodes

/// That commit() has the nodes' threads do.
int tasks_of(Placement placement, double device_fraction) {
  const topology::Machine machine = two_real_nodes();
  sim::Gpu gpu(sim::Options{.memory_bytes = std::size_t{32} << 20});
  CountingExecutor executor(machine);
  Config config;
  config.placement = placement;
  config.device_fraction = device_fraction;
  config.bucket_bytes = 65536;
  pipeline::ParameterInput parameter;
  parameter.name = "w";
  parameter.elems = kElems;
  parameter.weight = gpu.allocate(2 * kElems);
  gpu.synchronize();
  const std::vector<optim::Group> groups = {{AdamW{}, {}}};
  const std::vector<pipeline::ParameterInput> parameters = {parameter};
  const pipeline::Pipeline pipeline(*gpu.device().backend(), executor, machine, config,
                                    {.groups = groups, .parameters = parameters});
  return executor.tasks();
}

/// A first pass and three that count, on both nodes.
constexpr int kTrialTasks = 8;

TEST(NodeTrials, RunForStateOnTheHost) {
  EXPECT_GE(tasks_of(Placement::host, 0.0), kTrialTasks);
  EXPECT_GE(tasks_of(Placement::fraction, 0.2), kTrialTasks);
}

TEST(NodeTrials, DoNotRunForStateThatTheHostNeverGets) {
  EXPECT_EQ(tasks_of(Placement::device_resident, 0.0), 0);
  EXPECT_EQ(tasks_of(Placement::fraction, 1.0), 0);
}

}  // namespace
}  // namespace outboard::testing
