// SPDX-License-Identifier: Apache-2.0
#include "pipeline/node_rates.hpp"

#include <algorithm>
#include <deque>

#include "core/round_up.hpp"
#include "memory/numa_arena.hpp"
#include "optim/rule_scalars.hpp"
#include "simd/update.hpp"

namespace outboard::pipeline {
namespace {

constexpr std::uint32_t kPasses = 3;
/// Of one thread: more than its share of the caches, and done in a millisecond or two.
constexpr std::uint64_t kThreadElems = std::uint64_t{512} << 10;
/// Gradient with the weight in its place, three FP32 streams.
constexpr std::uint64_t kScratchBytesPerElem = 14;

class Trial {
 public:
  Trial(Flow& flow, const topology::Machine& machine, std::uint64_t elems_per_node) : flow_(flow) {
    for (std::uint32_t node = 0; node < flow.executor.nodes(); ++node) {
      const std::uint64_t threads = flow.executor.threads(node);
      const std::uint64_t elems = std::min(elems_per_node, threads * kThreadElems);
      Node& made = nodes_.emplace_back();
      made.part_elems = core::round_up((elems + threads - 1) / threads, kPartAlignElems);
      made.elems = made.part_elems * threads;
      made.scratch = memory::NumaArena(machine, node, made.elems * kScratchBytesPerElem,
                                       "trials of the nodes' speed");
    }
  }

  std::vector<double> run(std::unique_lock<std::mutex>& lock) {
    pass(lock);  // the first touches the pages
    std::vector<double> rates(nodes_.size(), 0.0);
    for (std::uint32_t i = 0; i < kPasses; ++i) {
      std::vector<std::int64_t> before;
      for (std::uint32_t n = 0; n < nodes_.size(); ++n) before.push_back(flow_.executor.busy_ns(n));
      pass(lock);
      for (std::uint32_t n = 0; n < nodes_.size(); ++n) {
        const std::int64_t busy_ns = flow_.executor.busy_ns(n) - before[n];
        if (busy_ns <= 0) continue;
        const auto elems = static_cast<double>(nodes_[n].elems);
        rates[n] = std::max(rates[n], elems * 1e9 / static_cast<double>(busy_ns));
      }
    }
    return rates;
  }

 private:
  struct Node {
    std::uint64_t elems = 0, part_elems = 0;
    memory::NumaArena scratch;
  };

  void pass(std::unique_lock<std::mutex>& lock) {
    for (std::uint32_t node = 0; node < nodes_.size(); ++node) {
      exec::Task task;
      task.node = node;
      task.parts = flow_.executor.threads(node);
      task.body = &Trial::update;
      task.done = &Trial::done;
      task.context = this;
      task.argument = node;
      flow_.post(task);
    }
    flow_.backend.waiter().wait(
        lock, [this] { return flow_.tasks_pending == 0; }, "trials of the nodes' speed");
  }

  static void update(void* self, std::uint64_t node, std::uint32_t part) noexcept {
    const Node& mine = static_cast<const Trial*>(self)->nodes_[node];
    std::byte* const grad = mine.scratch.bytes().data();
    const std::uint64_t first = mine.part_elems * part;
    const auto stream = [&](std::uint64_t index) {
      auto* const start = reinterpret_cast<float*>(grad + mine.elems * (2 + 4 * index));
      return std::span(start + first, mine.part_elems);
    };
    simd::UpdateShard shard;
    shard.grad = {grad + first * 2, simd::Format::f16};
    shard.weight = {grad + first * 2, simd::Format::f16};
    shard.param = stream(0);
    shard.state = {stream(1), stream(2)};
    (void)simd::update(shard, optim::scalars(AdamW{}, 1, 1.0));
  }

  static void done(void* self, std::uint64_t) noexcept {
    Flow& flow = static_cast<const Trial*>(self)->flow_;
    const std::lock_guard guard(flow.mutex);
    flow.finish_task();
  }

  Flow& flow_;
  std::deque<Node> nodes_;
};

}  // namespace

std::vector<double> measure_node_rates(std::unique_lock<std::mutex>& lock, Flow& flow,
                                       const topology::Machine& machine,
                                       std::uint64_t elems_per_node) {
  return Trial(flow, machine, elems_per_node).run(lock);
}

}  // namespace outboard::pipeline
