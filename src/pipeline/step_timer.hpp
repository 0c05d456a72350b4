// SPDX-License-Identifier: Apache-2.0
/// Times of the trainer's own work, from events on its streams: what lies between its calls of
/// wait() and gradient_ready(). Read one step late, when all of them have been reached, so that
/// nothing waits.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "pipeline/flow.hpp"
#include "plan/cost_model.hpp"

namespace outboard::pipeline {

class StepTimer {
 public:
  explicit StepTimer(Flow& flow);
  ~StepTimer();
  StepTimer(const StepTimer&) = delete;
  StepTimer& operator=(const StepTimer&) = delete;

  /// Around the waits that wait() queues on a stream that exists. The first of a step counts.
  void wait_begins(std::uint32_t parameter, NativeStream stream);
  void wait_ends(std::uint32_t parameter, NativeStream stream);
  /// Of several micro-batches the first is timed: the others may wait for buffers of this one.
  void gradient_given(std::uint32_t parameter, NativeStream stream);
  /// Forgets the step that runs.
  void restart() noexcept { begun_ = false; }
  /// step() has been called, with a gradient given: its step ends here.
  void step_ends();

  // Of the step before the one that ended last, until the next one begins:
  /// From the end of the backward before to its own.
  [[nodiscard]] std::optional<double> step_us() const noexcept { return step_us_; }
  /// nullopt: the trainer waited for nothing, or an event has not been reached. `rates`: the norms
  /// and sums that run on the device between pieces of backward are taken out. Of one micro-batch.
  [[nodiscard]] std::optional<plan::StepTimes> times(const plan::Rates& rates) const;

 private:
  struct Marks {
    std::vector<device::Event> before, after, given;  // by parameter
    std::vector<bool> waited;                         // by parameter
    std::vector<std::uint32_t> waits, gradients;      // in the order of their calls
    device::Event end;
    NativeStream last_stream;
    bool ended = false;
  };
  void create(Marks& marks, std::size_t parameters);
  void destroy() noexcept;
  Marks& current();
  [[nodiscard]] bool reached(const Marks& marks) const;
  /// What the engine does on the device behind the parameter's first gradient.
  [[nodiscard]] double kernels_us(std::uint32_t parameter, const plan::Rates& rates) const;

  Flow& flow_;
  std::array<Marks, 2> marks_;
  std::size_t now_ = 0;  // in marks_: the step that runs
  bool begun_ = false;   // it has marks
  std::optional<double> step_us_;
};

}  // namespace outboard::pipeline
