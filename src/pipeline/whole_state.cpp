// SPDX-License-Identifier: Apache-2.0
#include "pipeline/whole_state.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "core/mix64.hpp"
#include "simd/convert.hpp"
#include "simd/reduce.hpp"

namespace outboard::pipeline {
namespace {

using core::mix64;

[[noreturn]] void refuse_non_finite(const char* call, const std::string& name, const char* what,
                                    std::uint64_t element, bool is_nan) {
  throw Error(ErrorCode::invalid_argument,
              std::string(call) + ": the " + what + " of parameter '" + name + "' is " +
                  (is_nan ? "NaN" : "Inf") + " at element " + std::to_string(element) +
                  "; nothing non-finite may enter the state, so give finite weights");
}

}  // namespace

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
    std::vector<std::vector<std::byte>> weights;
    with_borrowed_memory(lock, [&] { load_resident(lock, weights); });
  } else {
    load_host(lock);
  }
  masters_ = {};
}

void WholeState::require_finite_masters() const {
  for (std::uint32_t i = 0; i < masters_.size(); ++i) {
    const simd::GradientReduction found =
        simd::reduce_gradient({masters_[i].data(), simd::Format::f32}, masters_[i].size());
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
    const Parameter& parameter = flow_.parameters[i];
    flow_.backend.reduce_gradient(flow_.up, {parameter.weight, optim::format_of(parameter.dtype)},
                                  parameter.elems, scalars);
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
                               std::vector<std::vector<std::byte>>& weights) {
  for (std::size_t i = 0; i < flow_.streams.streams() && resident_->stream_bytes() > 0; ++i) {
    flow_.backend.fill_zero(flow_.up, resident_->stream(i), resident_->stream_bytes());
  }
  for (const plan::Segment& segment : flow_.layout.segments) load_resident(segment, weights);
  synchronize(lock, flow_.up, "commit(): the initial state");
}

/// `weights`: keeps what is copied to the device until the copies have passed.
void WholeState::load_resident(const plan::Segment& segment,
                               std::vector<std::vector<std::byte>>& weights) {
  const Parameter& parameter = flow_.parameters[segment.parameter];
  const auto state = resident_->address(segment);
  const simd::Elements weight{flow_.weight_address(segment), optim::format_of(parameter.dtype)};
  if (const auto master = masters_[segment.parameter]; master.empty()) {
    flow_.backend.to_float(flow_.up, state.param, {weight.data, weight.format}, segment.elems);
  } else {
    const auto values = master.subspan(segment.first_element, segment.elems);
    auto& bytes = weights.emplace_back(segment.elems * flow_.elem_bytes(segment));
    flow_.weight_overflows[segment.parameter] +=
        simd::from_float(values, {bytes.data(), weight.format});
    flow_.backend.copy_to_device(state.param, std::as_bytes(values), flow_.up);
    flow_.backend.copy_to_device(weight.data, bytes, flow_.up);
  }
  if (parameter.initial_state != 0.0F) {
    flow_.backend.fill(flow_.up, {state.state[0], simd::Format::f32}, segment.elems,
                       std::bit_cast<std::uint32_t>(parameter.initial_state));
  }
  if (state.ema != nullptr) {
    flow_.backend.copy_on_device(state.ema, state.param, segment.elems * sizeof(float), flow_.up);
  }
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
      flow_.backend.to_float(flow_.up, resident_->address(segment).param,
                             {flow_.weight_address(segment), optim::format_of(parameter.dtype)},
                             segment.elems);
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
  std::uint64_t sum = mix64(std::bit_cast<std::uint64_t>(loss_scale));
  for (std::uint64_t i = 0; i < flow_.parameters.size(); ++i) {
    sum += mix64(mix64(i + 1) + flow_.parameters[i].step_count);
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
    flow_.backend.digest(flow_.up, {.param = state.param,
                                    .state = {state.state[0], state.state[1]},
                                    .ema = state.ema,
                                    .elems = segment.elems,
                                    .parameter = segment.parameter,
                                    .first_element = segment.first_element,
                                    .sum = scalars_.device_sum});
  }
  flow_.backend.copy_to_host(scalars_.host_sum, scalars_.device_sum, flow_.up);
  synchronize(lock, flow_.up, "state_digest()");
  std::uint64_t sum = 0;
  std::memcpy(&sum, scalars_.host_sum.data(), sizeof(sum));
  return sum;
}

void WholeState::read(std::unique_lock<std::mutex>& lock, std::uint32_t index,
                      std::span<const StateRead> reads) {
  if (resident_ == nullptr) return read_host(index, reads);
  with_borrowed_memory(lock, [&] {
    queue_reads(index, reads);
    synchronize(lock, flow_.up, "read_state()");
  });
}

/// Among the engine's streams.
std::size_t WholeState::stream_of(std::uint32_t parameter, const StateRead& read) const {
  const bool own = read.stream <= flow_.parameters[parameter].rule_streams;
  return own ? read.stream : flow_.streams.ema_stream();
}

void WholeState::read_host(std::uint32_t index, std::span<const StateRead> reads) {
  const plan::SegmentRange range = flow_.parameters[index].segments;
  for (std::uint32_t i = 0; i < range.count; ++i) {
    const plan::Segment& segment = flow_.layout.segments[range.first + i];
    const auto state = flow_.lease(segment.bucket);
    for (const StateRead& read : reads) {
      const auto source = state.stream<float>(stream_of(index, read));
      std::ranges::copy(source.subspan(segment.offset, segment.elems),
                        read.out.subspan(segment.first_element, segment.elems).begin());
    }
  }
}

void WholeState::queue_reads(std::uint32_t index, std::span<const StateRead> reads) {
  const plan::SegmentRange range = flow_.parameters[index].segments;
  for (std::uint32_t i = 0; i < range.count; ++i) {
    const plan::Segment& segment = flow_.layout.segments[range.first + i];
    for (const StateRead& read : reads) {
      const auto target = read.out.subspan(segment.first_element, segment.elems);
      flow_.backend.copy_to_host(std::as_writable_bytes(target),
                                 resident_->stream_address(segment, stream_of(index, read)),
                                 flow_.up);
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

}  // namespace outboard::pipeline
