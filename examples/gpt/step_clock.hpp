// SPDX-License-Identifier: Apache-2.0
/// Measures a training step on the device's stream.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <vector>

#include "model.hpp"
#include "outboard/outboard.hpp"
#include "time_split.hpp"

namespace gpt {

/// Queues calls that do nothing but read the clock. One step at a time; real time only. Where the
/// machine does not time its operators, what they wait for counts as theirs.
class StepClock {
 public:
  /// `model` must outlive all queued marks.
  StepClock(std::shared_ptr<Machine> machine, const Model& model, std::size_t micro_batches);

  void begin_step();
  /// Queues a mark. Each micro-batch makes three, in this order: before its forward pass, before
  /// and after its backward pass.
  void mark(outboard::NativeStream stream);
  /// Right after step() has returned. Waits for the marks, of which the last one may be under way.
  [[nodiscard]] TimeSplit end_step(outboard::NativeStream stream);

 private:
  using Clock = std::chrono::steady_clock;
  struct Mark {
    Clock::time_point time;
    double kernel_ms = 0.0;  // the model's, up to here
  };

  std::shared_ptr<Machine> machine_;
  const Model& model_;
  std::vector<Mark> marks_;
  std::size_t next_ = 0;
  Clock::time_point begin_;
};

}  // namespace gpt
