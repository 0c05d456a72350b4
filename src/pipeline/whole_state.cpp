// SPDX-License-Identifier: Apache-2.0
#include "pipeline/whole_state.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "core/mix64.hpp"
#include "optim/rule_scalars.hpp"
#include "simd/convert.hpp"
#include "simd/reduce.hpp"

namespace outboard::pipeline {
namespace {

[[noreturn]] void refuse_non_finite(const char* call, const std::string& name, const char* what,
                                    std::uint64_t element, bool is_nan) {
  throw Error(ErrorCode::invalid_argument,
              std::string(call) + ": the " + what + " of parameter '" + name + "' is " +
                  (is_nan ? "NaN" : "Inf") + " at element " + std::to_string(element) +
                  "; nothing non-finite may enter the state, so give finite weights");
}

}  // namespace

WholeState::WholeState(Flow& flow, Resident& resident, const Scalars& scalars)
    : flow_(flow), resident_(resident), scalars_(scalars), passed_(flow.backend.create_event()) {}

WholeState::~WholeState() {
  flow_.backend.destroy_event(passed_);
}

/// The segments of the range that are resident, or those that are not.
template <class Use>
void WholeState::for_each_segment(plan::SegmentRange range, bool resident, Use use) const {
  for (std::uint32_t i = 0; i < range.count; ++i) {
    const plan::Segment& segment = flow_.layout.segments[range.first + i];
    if (flow_.is_resident(segment.bucket) == resident) use(segment);
  }
}

void WholeState::load(std::unique_lock<std::mutex>& lock,
                      std::span<const std::span<const float>> masters) {
  const Generation& last = flow_.generations.back();
  masters_ = masters;
  first_parameter_ = last.first_parameter;
  require_finite_masters();
  std::vector<std::uint32_t> from_device;
  for (std::uint32_t i = last.first_parameter; i < last.end_parameter; ++i) {
    if (master(i).empty()) from_device.push_back(i);
  }
  require_finite_weights(lock, "commit()", from_device);
  std::uint32_t resident = 0;
  for (std::uint32_t i = last.first_bucket; i < last.end_bucket; ++i) {
    resident += flow_.is_resident(i) ? 1 : 0;
  }
  if (resident < last.end_bucket - last.first_bucket) load_host(lock);
  if (resident > 0) load_resident(lock);
  masters_ = {};
}

plan::SegmentRange WholeState::loaded_segments() const {
  const std::uint32_t first = flow_.generations.back().first_segment;
  return {first, static_cast<std::uint32_t>(flow_.layout.segments.size()) - first};
}

void WholeState::require_finite_masters() const {
  for (std::uint32_t i = 0; i < masters_.size(); ++i) {
    const simd::GradientReduction found =
        simd::reduce_gradient({masters_[i].data(), simd::Format::f32}, masters_[i].size());
    if (found.non_finite == 0) continue;
    refuse_non_finite("commit()", flow_.parameters[first_parameter_ + i].name, "`master`",
                      found.first_non_finite, found.first_is_nan);
  }
}

/// The norm kernel finds what is not finite in weights as well.
void WholeState::require_finite_weights(std::unique_lock<std::mutex>& lock, const char* call,
                                        std::span<const std::uint32_t> parameters) {
  const auto host = scalars_.host.first(flow_.gradient_scalar_bytes());
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
  const Generation& last = flow_.generations.back();
  for (std::uint32_t i = last.first_parameter; i < last.end_parameter; ++i) {
    if (master(i).empty()) copy_weights_to_slots(flow_.parameters[i].segments);
  }
  synchronize(lock, flow_.down, "commit(): the initial weights");
  run(lock, Job::load, loaded_segments());
  for_each_segment(loaded_segments(), false, [&](const plan::Segment& segment) {
    if (master(segment.parameter).empty()) return;
    flow_.backend.copy_to_device(flow_.weight_address(segment), flow_.slot_bytes(segment),
                                 flow_.up);
  });
  synchronize(lock, flow_.up, "commit(): weights made from the masters");
}

void WholeState::copy_weights_to_slots(plan::SegmentRange range) {
  for_each_segment(range, false, [&](const plan::Segment& segment) {
    flow_.backend.copy_to_host(flow_.slot_bytes(segment), flow_.weight_address(segment),
                               flow_.down);
  });
}

void WholeState::load_resident(std::unique_lock<std::mutex>& lock) {
  std::vector<std::vector<std::byte>> weights;
  with_borrowed_memory(lock, [&] {
    for (const auto stream : resident_.held(flow_.generations.size() - 1).streams) {
      if (!stream.empty()) flow_.backend.fill_zero(flow_.up, stream.data(), stream.size());
    }
    for_each_segment(loaded_segments(), true,
                     [&](const plan::Segment& segment) { load_resident(segment, weights); });
    synchronize(lock, flow_.up, "commit(): the initial state");
  });
}

/// `weights`: keeps what is copied to the device until the copies have passed.
void WholeState::load_resident(const plan::Segment& segment,
                               std::vector<std::vector<std::byte>>& weights) {
  const Parameter& parameter = flow_.parameters[segment.parameter];
  const auto state = resident_.address(segment);
  const simd::Elements weight{flow_.weight_address(segment), optim::format_of(parameter.dtype)};
  if (const auto given = master(segment.parameter); given.empty()) {
    flow_.backend.to_float(flow_.up, state.param, {weight.data, weight.format}, segment.elems);
  } else {
    const auto values = given.subspan(segment.first_element, segment.elems);
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
  // The norm of a gradient that was dropped goes where the weight's is about to.
  flow_.backend.record(passed_, flow_.norm);
  flow_.backend.wait_event(flow_.up, passed_);
  require_finite_weights(lock, "weights_changed()", {&index, 1});
  for_each_segment(parameter.segments, true, [&](const plan::Segment& segment) {
    flow_.backend.to_float(flow_.up, resident_.address(segment).param,
                           {flow_.weight_address(segment), optim::format_of(parameter.dtype)},
                           segment.elems);
  });
  if (parameter.resident_segments > 0) synchronize(lock, flow_.up, "weights_changed()");
  if (parameter.resident_segments == parameter.segments.count) return;
  flow_.backend.wait_event(flow_.down, parameter.ready);
  copy_weights_to_slots(parameter.segments);
  synchronize(lock, flow_.down, "weights_changed()");
  only_parameter_ = index;
  run(lock, Job::reread, parameter.segments);
}

template <class Use>
void WholeState::for_each_resident_stream(std::uint32_t first, Use use) const {
  for (std::uint32_t i = first; i < flow_.buckets.size(); ++i) {
    if (!flow_.is_resident(i)) continue;
    const auto state = flow_.lease(i);
    for (std::size_t k = 0; k < flow_.generation(i).streams.streams(); ++k) {
      use(state.stream<std::byte>(k), resident_.bucket_address(i, k));
    }
  }
}

void WholeState::move_to_host(std::unique_lock<std::mutex>& lock) {
  for_each_resident_stream(0, [&](std::span<std::byte> host, const void* device) {
    flow_.backend.copy_to_host(host, device, flow_.up);
  });
  synchronize(lock, flow_.up, "state on its way to the host");
}

void WholeState::move_to_device(std::unique_lock<std::mutex>& lock, std::uint32_t first) {
  for_each_resident_stream(first, [&](std::span<const std::byte> host, void* device) {
    flow_.backend.copy_to_device(device, host, flow_.up);
  });
  synchronize(lock, flow_.up, "state on its way to the device");
}

std::uint64_t WholeState::digest(std::unique_lock<std::mutex>& lock, double loss_scale) {
  const std::uint64_t rest = digest_beside_host(lock, loss_scale);
  return rest + digest_host(lock);
}

std::uint64_t WholeState::digest_beside_host(std::unique_lock<std::mutex>& lock,
                                             double loss_scale) {
  std::uint64_t sum = core::digest_of_scale(loss_scale);
  for (std::uint64_t i = 0; i < flow_.parameters.size(); ++i) {
    sum += core::digest_of_steps(i, flow_.parameters[i].step_count);
  }
  return flow_.resident_count > 0 ? sum + digest_resident(lock) : sum;
}

std::uint64_t WholeState::digest_host(std::unique_lock<std::mutex>& lock) {
  sum_.store(0);
  run(lock, Job::digest, {0, static_cast<std::uint32_t>(flow_.layout.segments.size())});
  return sum_.load();
}

std::uint64_t WholeState::digest_resident(std::unique_lock<std::mutex>& lock) {
  flow_.backend.fill_zero(flow_.up, scalars_.device_sum, sizeof(std::uint64_t));
  for_each_segment({0, static_cast<std::uint32_t>(flow_.layout.segments.size())}, true,
                   [&](const plan::Segment& segment) {
                     const auto state = resident_.address(segment);
                     flow_.backend.digest(flow_.up, {.param = state.param,
                                                     .state = {state.state[0], state.state[1]},
                                                     .ema = state.ema,
                                                     .elems = segment.elems,
                                                     .parameter = segment.parameter,
                                                     .first_element = segment.first_element,
                                                     .sum = scalars_.device_sum});
                   });
  flow_.backend.copy_to_host(scalars_.host_sum, scalars_.device_sum, flow_.up);
  synchronize(lock, flow_.up, "state_digest()");
  std::uint64_t sum = 0;
  std::memcpy(&sum, scalars_.host_sum.data(), sizeof(sum));
  return sum;
}

void WholeState::read(std::unique_lock<std::mutex>& lock, std::uint32_t index,
                      std::span<const StateRead> reads) {
  const Parameter& parameter = flow_.parameters[index];
  for_each_segment(parameter.segments, false,
                   [&](const plan::Segment& segment) { read_host(segment, reads); });
  if (parameter.resident_segments == 0) return;
  with_borrowed_memory(lock, [&] {
    for_each_segment(parameter.segments, true,
                     [&](const plan::Segment& segment) { queue_reads(segment, reads); });
    synchronize(lock, flow_.up, "read_state()");
  });
}

void WholeState::read_host(const plan::Segment& segment, std::span<const StateRead> reads) {
  const auto state = flow_.lease(segment.bucket);
  for (const StateRead& read : reads) {
    const auto source = state.stream<float>(stream_of(segment.parameter, read));
    std::ranges::copy(source.subspan(segment.offset, segment.elems),
                      read.out.subspan(segment.first_element, segment.elems).begin());
  }
}

void WholeState::queue_reads(const plan::Segment& segment, std::span<const StateRead> reads) {
  for (const StateRead& read : reads) {
    const auto target = read.out.subspan(segment.first_element, segment.elems);
    flow_.backend.copy_to_host(
        std::as_writable_bytes(target),
        resident_.stream_address(segment, stream_of(segment.parameter, read)), flow_.up);
  }
}

void WholeState::copy_out(std::unique_lock<std::mutex>& lock, const ResidentPiece& piece,
                          std::span<std::byte> out) {
  with_borrowed_memory(lock, [&] {
    flow_.backend.copy_to_host(
        out,
        resident_.stream_address(piece.segment, piece.stream) + piece.first * optim::kStateBytes,
        flow_.up);
    synchronize(lock, flow_.up, "save()");
  });
}

void WholeState::copy_in(std::unique_lock<std::mutex>& lock, const ResidentPiece& piece,
                         std::span<const std::byte> in) {
  with_borrowed_memory(lock, [&] {
    flow_.backend.copy_to_device(
        resident_.stream_address(piece.segment, piece.stream) + piece.first * optim::kStateBytes,
        in, flow_.up);
    synchronize(lock, flow_.up, "load()");
  });
}

void WholeState::refresh_weights(std::unique_lock<std::mutex>& lock,
                                 const std::vector<bool>& parameters,
                                 std::span<const optim::Group> groups) {
  refreshed_.assign(parameters.size(), {});
  for (std::uint32_t i = 0; i < parameters.size(); ++i) {
    if (!parameters[i]) continue;
    const Parameter& parameter = flow_.parameters[i];
    auto& options = refreshed_[i].emplace();
    if (parameter.step_count == 0) continue;
    options = optim::update_options(groups[parameter.group].options, i, parameter.step_count);
    options.ema_one_minus_decay = 0.0F;
  }
  const plan::SegmentRange all{0, static_cast<std::uint32_t>(flow_.layout.segments.size())};
  run(lock, Job::refresh, all);
  const auto each = [&](bool resident, auto use) {
    for_each_segment(all, resident, [&](const plan::Segment& segment) {
      if (parameters[segment.parameter]) use(segment);
    });
  };
  each(false, [&](const plan::Segment& segment) {
    flow_.backend.copy_to_device(flow_.weight_address(segment), flow_.slot_bytes(segment),
                                 flow_.up);
  });
  each(true, [&](const plan::Segment& segment) { refresh_resident(segment); });
  synchronize(lock, flow_.up, "load(): weights made from the masters");
}

void WholeState::refresh_resident(const plan::Segment& segment) {
  const Parameter& parameter = flow_.parameters[segment.parameter];
  void* weight = flow_.weight_address(segment);
  const simd::Format format = optim::format_of(parameter.dtype);
  flow_.backend.fill_zero(flow_.up, weight, segment.elems * flow_.elem_bytes(segment));
  device::DeviceUpdate update;
  update.grad = {weight, format};
  update.weight = {weight, format};
  update.param = resident_.address(segment).param;
  update.elems = segment.elems;
  update.first_element = segment.first_element;
  update.scalars = kRefreshScalars;
  update.options = *refreshed_[segment.parameter];
  update.overflow_count = scalars_.device_counts + segment.parameter * sizeof(std::uint64_t);
  flow_.backend.update(flow_.up, update);
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
  flow_.synchronize(lock, passed_, who);
}

}  // namespace outboard::pipeline
