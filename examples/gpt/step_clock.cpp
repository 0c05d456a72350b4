// SPDX-License-Identifier: Apache-2.0
#include "step_clock.hpp"

#include <algorithm>
#include <utility>

namespace gpt {
namespace {

using Milliseconds = std::chrono::duration<double, std::milli>;
constexpr std::size_t kMarks = 3;  // of one micro-batch

}  // namespace

StepClock::StepClock(std::shared_ptr<Machine> machine, const Model& model,
                     std::size_t micro_batches)
    : machine_(std::move(machine)), model_(model), marks_(kMarks * micro_batches) {}

void StepClock::begin_step() {
  begin_ = Clock::now();
  next_ = 0;
}

void StepClock::mark(outboard::NativeStream stream) {
  Mark* const mark = &marks_[next_++];
  machine_->run_on_host(stream, [mark, model = &model_] {
    *mark = {Clock::now(), model->kernel_ms()};
  });
}

TimeSplit StepClock::end_step(outboard::NativeStream stream) {
  const Clock::time_point returned = Clock::now();
  machine_->synchronize(stream);
  const Clock::time_point last = marks_[next_ - 1].time;
  const Clock::time_point end = std::max(returned, last);
  TimeSplit split;
  for (std::size_t i = 0; i + 2 < next_; i += kMarks) {
    const Mark &start = marks_[i], &turn = marks_[i + 1], &done = marks_[i + 2];
    const double first = Milliseconds(turn.time - start.time).count();
    const double second = Milliseconds(done.time - turn.time).count();
    const bool timed = machine_->times_calls();
    const double forward = timed ? turn.kernel_ms - start.kernel_ms : first;
    const double backward = timed ? done.kernel_ms - turn.kernel_ms : second;
    split.forward += forward;
    split.backward += backward;
    split.wait_weights += first - forward;
    split.wait_gradients += second - backward;
  }
  split.gate = Milliseconds(end - last).count();
  split.other = Milliseconds(end - begin_).count() - split.total();
  return split;
}

}  // namespace gpt
