// SPDX-License-Identifier: Apache-2.0
#include "pipeline/step_timer.hpp"

#include <algorithm>

namespace outboard::pipeline {

StepTimer::StepTimer(Flow& flow) : flow_(flow) {
  try {
    for (Marks& marks : marks_) create(marks, flow.parameters.size());
  } catch (...) {
    destroy();
    throw;
  }
}

StepTimer::~StepTimer() {
  destroy();
}

void StepTimer::create(Marks& marks, std::size_t parameters) {
  for (auto* events : {&marks.before, &marks.after, &marks.given}) {
    events->reserve(parameters);
    for (std::size_t i = 0; i < parameters; ++i) {
      events->push_back(flow_.backend.create_timed_event());
    }
  }
  marks.end = flow_.backend.create_timed_event();
  marks.waited.assign(parameters, false);
  marks.waits.reserve(parameters);
  marks.gradients.reserve(parameters);
}

void StepTimer::destroy() noexcept {
  for (const Marks& marks : marks_) {
    for (const auto* events : {&marks.before, &marks.after, &marks.given}) {
      for (const device::Event event : *events) flow_.backend.destroy_event(event);
    }
    if (marks.end.index != device::Event{}.index) flow_.backend.destroy_event(marks.end);
  }
}

StepTimer::Marks& StepTimer::current() {
  Marks& marks = marks_[now_];
  if (begun_) return marks;
  begun_ = true;
  marks.waits.clear();
  marks.gradients.clear();
  marks.waited.assign(marks.waited.size(), false);
  return marks;
}

void StepTimer::wait_begins(std::uint32_t parameter, NativeStream stream) {
  Marks& marks = current();
  if (!marks.waited[parameter]) flow_.backend.record(marks.before[parameter], stream);
}

void StepTimer::wait_ends(std::uint32_t parameter, NativeStream stream) {
  Marks& marks = current();
  if (marks.waited[parameter]) return;
  marks.waited[parameter] = true;
  marks.waits.push_back(parameter);
  flow_.backend.record(marks.after[parameter], stream);
}

void StepTimer::gradient_given(std::uint32_t parameter, NativeStream stream) {
  Marks& marks = current();
  marks.last_stream = stream;
  if (flow_.parameters[parameter].micro_batches > 1) return;
  marks.gradients.push_back(parameter);
  flow_.backend.record(marks.given[parameter], stream);
}

void StepTimer::step_ends() {
  Marks& ended = current();
  const Marks& before = marks_[1 - now_];
  step_us_.reset();
  // `ended.end` is still that of the step before `before`.
  if (ended.ended && before.ended && flow_.backend.reached(ended.end) &&
      flow_.backend.reached(before.end)) {
    step_us_ = flow_.backend.elapsed_us(ended.end, before.end);
  }
  try {
    flow_.backend.record(ended.end, ended.last_stream);
    ended.ended = true;
  } catch (const Error& failure) {  // the trainer may have destroyed the stream since
    if (failure.code() != ErrorCode::invalid_argument) throw;
    ended.ended = false;
  }
  now_ = 1 - now_;
  begun_ = false;
}

bool StepTimer::reached(const Marks& marks) const {
  const auto there = [&](const std::vector<device::Event>& events) {
    return [&](std::uint32_t parameter) { return flow_.backend.reached(events[parameter]); };
  };
  return std::ranges::all_of(marks.waits, there(marks.before)) &&
         std::ranges::all_of(marks.waits, there(marks.after)) &&
         std::ranges::all_of(marks.gradients, there(marks.given));
}

double StepTimer::kernels_us(std::uint32_t index, const plan::Rates& rates) const {
  const Parameter& parameter = flow_.parameters[index];
  if (flow_.has_host_sum(parameter)) return 0.0;
  if (flow_.has_device_sum(parameter)) {
    return plan::device_sum_us(rates,
                               {.elems = parameter.elems,
                                .gradient_bytes = parameter.elems * dtype_bytes(parameter.dtype),
                                .parameters = 1,
                                .first = true,
                                .last = flow_.options.micro_batches == 1});
  }
  return rates.kernel_us +
         plan::duration_us(static_cast<double>(parameter.elems), rates.norm_elems_per_s);
}

std::optional<plan::StepTimes> StepTimer::times(const plan::Rates& rates) const {
  const Marks& marks = marks_[now_];
  if (begun_ || marks.waits.empty() || marks.gradients.empty() || !reached(marks)) return {};
  const auto elapsed = [&](device::Event from, device::Event to) {
    return std::max(0.0, flow_.backend.elapsed_us(from, to));  // below 0: on different streams
  };
  plan::StepTimes times;
  for (std::size_t i = 0; i < marks.waits.size(); ++i) {
    const std::uint32_t parameter = marks.waits[i];
    // The last one's forward is what its first piece of backward begins with: nobody says where.
    const double us = i + 1 == marks.waits.size()
                          ? 0.0
                          : elapsed(marks.after[parameter], marks.before[marks.waits[i + 1]]);
    times.forward.push_back({us, parameter});
  }
  device::Event from = marks.after[marks.waits.back()];
  double kernels_us = 0.0;
  std::vector<bool> given(flow_.parameters.size(), false);
  for (const std::uint32_t parameter : marks.gradients) {
    const double us = elapsed(from, marks.given[parameter]);
    times.backward.push_back({std::max(0.0, us - kernels_us), parameter});
    from = marks.given[parameter];
    kernels_us = this->kernels_us(parameter, rates);
    given[parameter] = true;
  }
  for (std::uint32_t i = 0; i < given.size(); ++i) {
    if (!given[i]) times.backward.push_back({0.0, i});  // the simulator wants each
  }
  times.micro_batches = flow_.options.micro_batches;
  return times;
}

}  // namespace outboard::pipeline
