// SPDX-License-Identifier: Apache-2.0
#include "pipeline/open_gate.hpp"

#include <algorithm>

#include "pipeline/added_time.hpp"
#include "pipeline/update.hpp"

namespace outboard::pipeline {
namespace {

constexpr std::int64_t kBeforeUpdates = -1;

/// Parameters [first, last] as the argument of a callback.
std::uint64_t pack(std::uint32_t first, std::uint32_t last) {
  return std::uint64_t{first} << 32 | last;
}
std::uint32_t first_of(std::uint64_t range) {
  return static_cast<std::uint32_t>(range >> 32);
}
std::uint32_t last_of(std::uint64_t range) {
  return static_cast<std::uint32_t>(range);
}

}  // namespace

OpenGate::OpenGate(Flow& flow, StepGate& gate, Readers& readers, OpenGateListener& listener)
    : flow_(flow),
      gate_(gate),
      readers_(readers),
      listener_(listener),
      normed_(flow.backend.create_event()) {
  reset();
}

OpenGate::~OpenGate() {
  flow_.backend.destroy_event(normed_);
}

// --- a gradient was given -----------------------------------------------------------------------

void OpenGate::gradient_given(std::uint32_t index, const optim::Group& group) {
  Parameter& parameter = flow_.parameters[index];
  take_settings(parameter, index, group, gate_.open_coeff());
  const bool by_sums = flow_.has_host_sum(parameter);
  parameter.open = by_sums ? OpenState::asked : OpenState::given;
  unknown_ += 1;
  // Whoever reads the weight has queued that by now.
  readers_.order_behind(flow_.past_readers);
  for (std::uint32_t i = 0; i < parameter.segments.count; ++i) {
    const std::uint32_t bucket = flow_.layout.segments[parameter.segments.first + i].bucket;
    if (--flow_.buckets[bucket].ungiven == 0) {
      flow_.backend.record(flow_.buckets[bucket].readers_passed, flow_.past_readers);
    }
  }
  if (!by_sums) return ask_for_completed(parameter);
  if (parameter.unlanded_copies == 0) known(index, index);
}

void OpenGate::sum_landed(std::uint32_t index) noexcept {
  const Parameter& parameter = flow_.parameters[index];
  if (parameter.open != OpenState::asked || parameter.unlanded_copies > 0) return;
  flow_.capture_failure([&] { known(index, index); });
}

/// Those of the parameter's buckets that lack no gradient. Their parameters follow each other; the
/// first and the last may have been asked for by another bucket that they lie in.
void OpenGate::ask_for_completed(const Parameter& parameter) {
  const std::uint32_t end = parameter.segments.first + parameter.segments.count;
  std::uint32_t first = UINT32_MAX;
  std::uint32_t last = 0;
  for (std::uint32_t i = parameter.segments.first; i < end; ++i) {
    const std::uint32_t index = flow_.layout.segments[i].bucket;
    if (flow_.buckets[index].ungiven > 0) continue;
    const plan::Bucket& bucket = flow_.layout.buckets[index];
    for (std::uint32_t k = 0; k < bucket.segments; ++k) {
      const std::uint32_t p = flow_.layout.segments[bucket.first_segment + k].parameter;
      if (flow_.parameters[p].open != OpenState::given) continue;
      flow_.parameters[p].open = OpenState::asked;
      first = std::min(first, p);
      last = p;
    }
  }
  if (first <= last) ask(first, last);
}

void OpenGate::ask_for_all() {
  const auto count = static_cast<std::uint32_t>(flow_.parameters.size());
  for (std::uint32_t first = 0; first < count; ++first) {
    if (flow_.parameters[first].open != OpenState::given) continue;
    std::uint32_t last = first;
    for (; last < count && flow_.parameters[last].open == OpenState::given; ++last) {
      flow_.parameters[last].open = OpenState::asked;
    }
    ask(first, last - 1);
    first = last - 1;
  }
}

void OpenGate::ask(std::uint32_t first, std::uint32_t last) {
  flow_.backend.record(normed_, flow_.norm);
  flow_.backend.wait_event(flow_.scalars, normed_);
  gate_.queue_fetch(first, last - first + 1, flow_.scalars);
  const device::Event known = flow_.parameters[last].scalars_known;
  flow_.backend.record(known, flow_.scalars);
  flow_.notify(known, {&OpenGate::scalars_landed, this, pack(first, last)});
}

// --- its scalars are known ----------------------------------------------------------------------

void OpenGate::scalars_landed(void* self, std::uint64_t range) noexcept {
  auto& gate = *static_cast<OpenGate*>(self);
  const std::lock_guard lock(gate.flow_.mutex);
  // What follows may call the device, which a callback must not.
  if (gate.flow_.device_count() > 0 || gate.flow_.options.check_waits) {
    exec::Task task;
    task.node = 0;
    task.priority = kBeforeUpdates;
    task.body = &OpenGate::nothing;
    task.done = &OpenGate::known_on_executor;
    task.context = self;
    task.argument = range;
    gate.flow_.post(task);
  } else {
    gate.flow_.capture_failure([&] { gate.known(first_of(range), last_of(range)); });
  }
  gate.flow_.finish_callback();
}

void OpenGate::nothing(void* /*self*/, std::uint64_t /*range*/, std::uint32_t /*part*/) noexcept {}

void OpenGate::known_on_executor(void* self, std::uint64_t range) noexcept {
  auto& gate = *static_cast<OpenGate*>(self);
  const std::lock_guard lock(gate.flow_.mutex);
  gate.flow_.capture_failure([&] { gate.known(first_of(range), last_of(range)); });
  gate.flow_.finish_task();
}

/// Of all parameters in [first, last] that were asked for. Their buckets open as backward goes,
/// from the last on: streamed state comes to the device in that order.
void OpenGate::known(std::uint32_t first, std::uint32_t last) {
  for (std::uint32_t p = first; p <= last; ++p) {
    if (flow_.parameters[p].open == OpenState::asked) judge(p);
  }
  if (flow_.options.check_waits) spoil_stale_weights(first, last);
  const plan::SegmentRange of_last = flow_.parameters[last].segments;
  const std::uint32_t begin = flow_.parameters[first].segments.first;
  const std::uint32_t end = of_last.first + of_last.count;
  std::uint32_t before = UINT32_MAX;
  for (std::uint32_t i = end; i-- > begin;) {
    const std::uint32_t bucket = flow_.layout.segments[i].bucket;
    if (bucket != before) try_open(bucket);
    before = bucket;
  }
}

void OpenGate::judge(std::uint32_t index) {
  Parameter& parameter = flow_.parameters[index];
  unknown_ -= 1;
  if (gate_.overflowed(index)) {
    parameter.open = OpenState::left_out;
    left_out_ += 1;
    for (BounceRing* ring : flow_.rings) ring->drop_gradients(index);
    return;
  }
  parameter.open = OpenState::updated;
  updated_ += 1;
  join_update(parameter);
  listener_.parameter_joins(index);
}

/// Config::check_waits: NaN in place of the weights that are about to be refreshed.
void OpenGate::spoil_stale_weights(std::uint32_t first, std::uint32_t last) {
  for (std::uint32_t p = first; p <= last; ++p) {
    const Parameter& parameter = flow_.parameters[p];
    if (parameter.open != OpenState::updated) continue;
    const std::uint32_t end = parameter.segments.first + parameter.segments.count;
    for (std::uint32_t i = parameter.segments.first; i < end; ++i) {
      const BucketRun& bucket = flow_.buckets[flow_.layout.segments[i].bucket];
      flow_.backend.wait_event(flow_.past_readers, bucket.refreshed);
    }
    flow_.backend.fill(flow_.past_readers, {parameter.weight, optim::format_of(parameter.dtype)},
                       parameter.elems, optim::nan_bits(parameter.dtype));
    for (std::uint32_t i = parameter.segments.first; i < end; ++i) {
      const BucketRun& bucket = flow_.buckets[flow_.layout.segments[i].bucket];
      flow_.backend.record(bucket.readers_passed, flow_.past_readers);
    }
  }
}

void OpenGate::try_open(std::uint32_t index) {
  const BucketRun& bucket = flow_.buckets[index];
  if (bucket.opened || bucket.ungiven > 0) return;
  const plan::Bucket& shape = flow_.layout.buckets[index];
  for (std::uint32_t i = 0; i < shape.segments; ++i) {
    const std::uint32_t p = flow_.layout.segments[shape.first_segment + i].parameter;
    const OpenState state = flow_.parameters[p].open;
    if (state != OpenState::updated && state != OpenState::left_out) return;
  }
  open(index);
}

void OpenGate::open(std::uint32_t index) {
  const plan::Bucket& shape = flow_.layout.buckets[index];
  flow_.buckets[index].opened = true;
  for (std::uint32_t i = 0; i < shape.segments; ++i) {
    const std::uint32_t segment = shape.first_segment + i;
    const std::uint32_t p = flow_.layout.segments[segment].parameter;
    flow_.segments[segment].in_update = flow_.parameters[p].open == OpenState::updated;
  }
  if (flow_.takes_part(index)) listener_.bucket_opens(index);
}

// --- the end of a step --------------------------------------------------------------------------

void OpenGate::finish(std::unique_lock<std::mutex>& lock) {
  ask_for_all();
  {
    const AddedTime time(flow_, flow_.stats.gate_wait_us);
    if (unknown_ > 0) flow_.stats.host_device_syncs += 1;
    flow_.wait_until(
        lock, [&] { return unknown_ == 0; }, "step(): the gradients' norms");
  }
  for (std::uint32_t i = 0; i < flow_.buckets.size(); ++i) {
    BucketRun& bucket = flow_.buckets[i];
    const plan::Bucket& shape = flow_.layout.buckets[i];
    if (bucket.opened || bucket.ungiven == shape.segments) continue;
    // A parameter that got no gradient has not been waited for: its last refresh may be pending.
    const AddedTime time(flow_, flow_.stats.drain_wait_us);
    flow_.wait_until(
        lock, [&] { return !bucket.updating; }, "step(): the update of the step before");
    flow_.backend.record(bucket.readers_passed, flow_.past_readers);
    open(i);
  }
}

void OpenGate::reset() noexcept {
  unknown_ = updated_ = left_out_ = 0;
  for (std::uint32_t i = 0; i < flow_.buckets.size(); ++i) {
    flow_.buckets[i].ungiven = flow_.layout.buckets[i].segments;
    flow_.buckets[i].opened = false;
  }
  for (Parameter& parameter : flow_.parameters) parameter.open = OpenState::waiting;
}

}  // namespace outboard::pipeline
