// SPDX-License-Identifier: Apache-2.0
#include "step_clock.hpp"

#include <algorithm>
#include <utility>

namespace gpt {
namespace {

using Milliseconds = std::chrono::duration<double, std::milli>;
constexpr std::size_t kMarks = 3;  // of one micro-batch

}  // namespace

StepClock::StepClock(outboard::sim::Gpu gpu, const Model& model, std::size_t micro_batches)
    : gpu_(std::move(gpu)), model_(model), marks_(kMarks * micro_batches) {}

void StepClock::begin_step() {
  begin_ = Clock::now();
  next_ = 0;
}

void StepClock::mark(outboard::NativeStream stream) {
  Mark* const mark = &marks_[next_++];
  gpu_.launch(
      stream, outboard::sim::Duration{0},
      [mark, model = &model_](outboard::sim::KernelView&) {
        *mark = {Clock::now(), model->kernel_ms()};
      },
      "clock");
}

TimeSplit StepClock::end_step(outboard::NativeStream stream) {
  const Clock::time_point returned = Clock::now();
  gpu_.synchronize(stream);
  const Clock::time_point last = marks_[next_ - 1].time;
  const Clock::time_point end = std::max(returned, last);
  TimeSplit split;
  for (std::size_t i = 0; i + 2 < next_; i += kMarks) {
    const Mark &start = marks_[i], &turn = marks_[i + 1], &done = marks_[i + 2];
    const double forward = turn.kernel_ms - start.kernel_ms;
    const double backward = done.kernel_ms - turn.kernel_ms;
    split.forward += forward;
    split.backward += backward;
    split.wait_weights += Milliseconds(turn.time - start.time).count() - forward;
    split.wait_gradients += Milliseconds(done.time - turn.time).count() - backward;
  }
  split.gate = Milliseconds(end - last).count();
  split.other = Milliseconds(end - begin_).count() - split.total();
  return split;
}

}  // namespace gpt
