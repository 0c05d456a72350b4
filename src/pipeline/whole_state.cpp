// SPDX-License-Identifier: Apache-2.0
#include "pipeline/whole_state.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "pipeline/host_sums.hpp"
#include "simd/convert.hpp"
#include "simd/digest.hpp"
#include "simd/reduce.hpp"

namespace outboard::pipeline {
namespace {

/// Finaliser of splitmix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators",
/// OOPSLA 2014).
std::uint64_t mix(std::uint64_t value) noexcept {
  value += 0x9E3779B97F4A7C15u;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
  return value ^ (value >> 31);
}

constexpr std::uint64_t kPartAlignElems = 64;

[[noreturn]] void refuse_non_finite(const char* call, const std::string& name, const char* what,
                                    std::uint64_t element, bool is_nan) {
  throw Error(ErrorCode::invalid_argument,
              std::string(call) + ": the " + what + " of parameter '" + name + "' is " +
                  (is_nan ? "NaN" : "Inf") + " at element " + std::to_string(element) +
                  "; nothing non-finite may enter the state, so give finite weights");
}

}  // namespace

/// The part of one segment that one thread works on.
struct WholeState::Cut {
  const plan::Segment& segment;
  std::uint64_t first_element;  // of the parameter
  std::span<float> param, exp_avg, exp_avg_sq;
  std::span<std::uint16_t> slot;
};

WholeState::WholeState(Flow& flow, Resident* resident, const Scalars& scalars)
    : flow_(flow), resident_(resident), scalars_(scalars), passed_(flow.backend.create_event()) {}

WholeState::~WholeState() {
  flow_.backend.destroy_event(passed_);
}

void WholeState::load(std::unique_lock<std::mutex>& lock,
                      std::span<const std::span<const float>> masters) {
  masters_ = masters;
  require_finite_masters();
  std::vector<std::uint32_t> from_device;
  for (std::uint32_t i = 0; i < masters.size(); ++i) {
    if (masters[i].empty()) from_device.push_back(i);
  }
  require_finite_weights(lock, "commit()", from_device);
  if (resident_ != nullptr) {
    std::vector<std::vector<std::uint16_t>> halves;
    with_borrowed_memory(lock, [&] { load_resident(lock, halves); });
  } else {
    load_host(lock);
  }
  masters_ = {};
}

void WholeState::require_finite_masters() const {
  for (std::uint32_t i = 0; i < masters_.size(); ++i) {
    const simd::GradientReduction found = simd::reduce_gradient(masters_[i]);
    if (found.non_finite == 0) continue;
    refuse_non_finite("commit()", flow_.parameters[i].name, "`master`", found.first_non_finite,
                      found.first_is_nan);
  }
}

/// The norm kernel finds what is not finite in weights as well.
void WholeState::require_finite_weights(std::unique_lock<std::mutex>& lock, const char* call,
                                        std::span<const std::uint32_t> parameters) {
  const auto host = scalars_.host.first(flow_.parameters.size() * sizeof(device::GradientScalars));
  for (const std::uint32_t i : parameters) {
    auto* scalars = static_cast<std::byte*>(scalars_.device) + i * sizeof(device::GradientScalars);
    flow_.backend.reduce_gradient(flow_.up, flow_.parameters[i].weight, flow_.parameters[i].elems,
                                  scalars);
  }
  flow_.backend.copy_to_host(host, scalars_.device, flow_.up);
  synchronize(lock, flow_.up, call);
  for (const std::uint32_t i : parameters) {
    device::GradientScalars found;
    std::memcpy(&found, host.data() + i * sizeof(found), sizeof(found));
    if (found.non_finite == 0) continue;
    refuse_non_finite(call, flow_.parameters[i].name, "weight", found.first_non_finite >> 1,
                      (found.first_non_finite & 1) != 0);
  }
}

void WholeState::load_host(std::unique_lock<std::mutex>& lock) {
  for (std::uint32_t i = 0; i < flow_.parameters.size(); ++i) {
    if (masters_[i].empty()) copy_weights_to_slots(flow_.parameters[i].segments);
  }
  synchronize(lock, flow_.down, "commit(): the initial weights");
  run(lock, Job::load, {0, static_cast<std::uint32_t>(flow_.layout.segments.size())});
  for (const plan::Segment& segment : flow_.layout.segments) {
    if (masters_[segment.parameter].empty()) continue;
    flow_.backend.copy_to_device(flow_.weight_address(segment), flow_.slot_bytes(segment),
                                 flow_.up);
  }
  synchronize(lock, flow_.up, "commit(): weights made from the masters");
}

void WholeState::copy_weights_to_slots(plan::SegmentRange range) {
  for (std::uint32_t i = 0; i < range.count; ++i) {
    const plan::Segment& segment = flow_.layout.segments[range.first + i];
    flow_.backend.copy_to_host(flow_.slot_bytes(segment), flow_.weight_address(segment),
                               flow_.down);
  }
}

void WholeState::load_resident(std::unique_lock<std::mutex>& lock,
                               std::vector<std::vector<std::uint16_t>>& halves) {
  for (std::size_t i = 0; i < 3 && resident_->stream_bytes() > 0; ++i) {
    flow_.backend.fill_zero(flow_.up, const_cast<void*>(resident_->stream(i)),
                            resident_->stream_bytes());
  }
  for (const plan::Segment& segment : flow_.layout.segments) {
    const auto state = resident_->address(segment);
    const auto master = masters_[segment.parameter];
    if (master.empty()) {
      flow_.backend.half_to_float(flow_.up, state.param, flow_.weight_address(segment),
                                  segment.elems);
      continue;
    }
    const auto values = master.subspan(segment.first_element, segment.elems);
    auto& half = halves.emplace_back(values.size());
    flow_.weight_overflows[segment.parameter] += simd::float_to_half(values, half);
    flow_.backend.copy_to_device(state.param, std::as_bytes(values), flow_.up);
    flow_.backend.copy_to_device(flow_.weight_address(segment), std::as_bytes(std::span(half)),
                                 flow_.up);
  }
  synchronize(lock, flow_.up, "commit(): the initial state");
}

void WholeState::reread(std::unique_lock<std::mutex>& lock, std::uint32_t index,
                        NativeStream stream) {
  Parameter& parameter = flow_.parameters[index];
  flow_.backend.record(parameter.ready, stream);
  flow_.backend.wait_event(flow_.up, parameter.ready);
  require_finite_weights(lock, "weights_changed()", {&index, 1});
  if (resident_ != nullptr) {
    for (std::uint32_t i = 0; i < parameter.segments.count; ++i) {
      const plan::Segment& segment = flow_.layout.segments[parameter.segments.first + i];
      flow_.backend.half_to_float(flow_.up, resident_->address(segment).param,
                                  flow_.weight_address(segment), segment.elems);
    }
    synchronize(lock, flow_.up, "weights_changed()");
    return;
  }
  flow_.backend.wait_event(flow_.down, parameter.ready);
  copy_weights_to_slots(parameter.segments);
  synchronize(lock, flow_.down, "weights_changed()");
  only_parameter_ = index;
  run(lock, Job::reread, parameter.segments);
}

std::uint64_t WholeState::digest(std::unique_lock<std::mutex>& lock, double loss_scale) {
  std::uint64_t sum = mix(std::bit_cast<std::uint64_t>(loss_scale));
  for (std::uint64_t i = 0; i < flow_.parameters.size(); ++i) {
    sum += mix(mix(i + 1) + flow_.parameters[i].step_count);
  }
  if (resident_ != nullptr) return sum + digest_resident(lock);
  sum_.store(0);
  run(lock, Job::digest, {0, static_cast<std::uint32_t>(flow_.layout.segments.size())});
  return sum + sum_.load();
}

std::uint64_t WholeState::digest_resident(std::unique_lock<std::mutex>& lock) {
  flow_.backend.fill_zero(flow_.up, scalars_.device_sum, sizeof(std::uint64_t));
  for (const plan::Segment& segment : flow_.layout.segments) {
    const auto state = resident_->address(segment);
    flow_.backend.digest(flow_.up, {state.param, state.exp_avg, state.exp_avg_sq, segment.elems,
                                    segment.parameter, segment.first_element, scalars_.device_sum});
  }
  flow_.backend.copy_to_host(scalars_.host_sum, scalars_.device_sum, flow_.up);
  synchronize(lock, flow_.up, "state_digest()");
  std::uint64_t sum = 0;
  std::memcpy(&sum, scalars_.host_sum.data(), sizeof(sum));
  return sum;
}

void WholeState::read(std::unique_lock<std::mutex>& lock, std::uint32_t index,
                      const std::array<std::span<float>, 3>& out) {
  if (resident_ == nullptr) return read_host(index, out);
  with_borrowed_memory(lock, [&] {
    queue_reads(index, out);
    synchronize(lock, flow_.up, "read_state()");
  });
}

void WholeState::read_host(std::uint32_t index, const std::array<std::span<float>, 3>& out) {
  const plan::SegmentRange range = flow_.parameters[index].segments;
  for (std::uint32_t i = 0; i < range.count; ++i) {
    const plan::Segment& segment = flow_.layout.segments[range.first + i];
    for (std::size_t stream = 0; stream < 3; ++stream) {
      if (out[stream].empty()) continue;
      const auto source = flow_.lease(segment.bucket).stream<float>(stream);
      std::ranges::copy(source.subspan(segment.offset, segment.elems),
                        out[stream].subspan(segment.first_element, segment.elems).begin());
    }
  }
}

void WholeState::queue_reads(std::uint32_t index, const std::array<std::span<float>, 3>& out) {
  const plan::SegmentRange range = flow_.parameters[index].segments;
  for (std::uint32_t i = 0; i < range.count; ++i) {
    const plan::Segment& segment = flow_.layout.segments[range.first + i];
    const auto state = resident_->address(segment);
    const std::byte* source[] = {state.param, state.exp_avg, state.exp_avg_sq};
    for (std::size_t stream = 0; stream < 3; ++stream) {
      if (out[stream].empty()) continue;
      const auto target = out[stream].subspan(segment.first_element, segment.elems);
      flow_.backend.copy_to_host(std::as_writable_bytes(target), source[stream], flow_.up);
    }
  }
}

template <class Work>
void WholeState::with_borrowed_memory(std::unique_lock<std::mutex>& lock, Work work) {
  try {
    work();
  } catch (...) {
    // The caller's memory may go as soon as this returns; a stream that is gone uses none of it.
    lock.unlock();
    flow_.backend.destroy_stream(std::exchange(flow_.up, {}));
    lock.lock();
    throw;
  }
}

void WholeState::synchronize(std::unique_lock<std::mutex>& lock, NativeStream stream,
                             const char* who) {
  flow_.backend.record(passed_, stream);
  flow_.stats.host_device_syncs += 1;
  lock.unlock();
  try {
    flow_.backend.synchronize(passed_, who);
  } catch (...) {
    lock.lock();
    throw;
  }
  lock.lock();
}

void WholeState::run(std::unique_lock<std::mutex>& lock, Job job, plan::SegmentRange only) {
  job_ = job;
  if (only.count == 0) return;
  const std::uint32_t first = flow_.layout.segments[only.first].bucket;
  const std::uint32_t last = flow_.layout.segments[only.first + only.count - 1].bucket;
  for (std::uint32_t i = first; i <= last; ++i) {
    const plan::Bucket& bucket = flow_.layout.buckets[i];
    exec::Task task;
    task.node = bucket.node;
    task.priority = i;
    task.parts = flow_.executor.threads(bucket.node);
    task.cost_elems = bucket.elems;
    task.body = &WholeState::body;
    task.done = &WholeState::done;
    task.context = this;
    task.argument = i;
    flow_.post(task);
  }
  flow_.backend.waiter().wait(
      lock, [&] { return flow_.tasks_pending == 0; }, "a pass over the whole state");
}

void WholeState::body(void* self, std::uint64_t argument, std::uint32_t part) noexcept {
  auto& whole = *static_cast<WholeState*>(self);
  const auto bucket = static_cast<std::uint32_t>(argument);
  switch (whole.job_) {
    case Job::load:
      return whole.load_part(bucket, part);
    case Job::reread:
      return whole.reread_part(bucket, part);
    case Job::digest:
      return whole.digest_part(bucket, part);
  }
}

void WholeState::done(void* self, std::uint64_t /*argument*/) noexcept {
  auto& whole = *static_cast<WholeState*>(self);
  const std::lock_guard lock(whole.flow_.mutex);
  whole.flow_.finish_task();
}

/// Splits a bucket as the update does, so that a page is first touched by the thread that owns it.
template <class Use>
void WholeState::for_each_cut(std::uint32_t index, std::uint32_t part, Use use) noexcept {
  const plan::Bucket& bucket = flow_.layout.buckets[index];
  const std::uint64_t parts = flow_.executor.threads(bucket.node);
  const std::uint64_t even = (bucket.padded_elems + parts - 1) / parts;
  const std::uint64_t part_elems = (even + kPartAlignElems - 1) / kPartAlignElems * kPartAlignElems;
  const std::uint64_t begin = std::min(part_elems * part, bucket.padded_elems);
  const std::uint64_t end = std::min(begin + part_elems, bucket.padded_elems);
  const auto state = flow_.lease(index);
  auto* slot = reinterpret_cast<std::uint16_t*>(flow_.buckets[index].slot.bytes.data());
  for (std::uint32_t i = 0; i < bucket.segments; ++i) {
    const plan::Segment& segment = flow_.layout.segments[bucket.first_segment + i];
    const std::uint64_t from = std::max(begin, segment.offset);
    const std::uint64_t to = std::min(end, segment.offset + segment.elems);
    if (from >= to) continue;
    const auto cut = [&](std::size_t stream) {
      return state.template stream<float>(stream).subspan(from, to - from);
    };
    use(Cut{segment, segment.first_element + (from - segment.offset), cut(0), cut(1), cut(2),
            std::span(slot + from, to - from)});
  }
}

void WholeState::load_part(std::uint32_t index, std::uint32_t part) noexcept {
  if (flow_.sums != nullptr) {
    flow_.sums->touch(index, part, flow_.executor.threads(flow_.layout.buckets[index].node));
  }
  for_each_cut(index, part, [&](const Cut& cut) { load_cut(cut); });
}

void WholeState::load_cut(const Cut& cut) noexcept {
  std::ranges::fill(cut.exp_avg, 0.0F);
  std::ranges::fill(cut.exp_avg_sq, 0.0F);
  const auto master = masters_[cut.segment.parameter];
  if (master.empty()) {
    simd::half_to_float(cut.slot, cut.param);
    return;
  }
  std::ranges::copy(master.subspan(cut.first_element, cut.param.size()), cut.param.begin());
  flow_.weight_overflows[cut.segment.parameter] += simd::float_to_half(cut.param, cut.slot);
}

void WholeState::reread_part(std::uint32_t index, std::uint32_t part) noexcept {
  for_each_cut(index, part, [&](const Cut& cut) {
    if (cut.segment.parameter == only_parameter_) simd::half_to_float(cut.slot, cut.param);
  });
}

void WholeState::digest_part(std::uint32_t index, std::uint32_t part) noexcept {
  std::uint64_t sum = 0;
  for_each_cut(index, part, [&](const Cut& cut) {
    sum += simd::digest_state(
        {cut.segment.parameter, cut.first_element, cut.param, {cut.exp_avg, cut.exp_avg_sq}});
  });
  sum_.fetch_add(sum);
}

}  // namespace outboard::pipeline
