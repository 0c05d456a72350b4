// SPDX-License-Identifier: Apache-2.0
#include "device/sim/operation.hpp"

#include <cmath>

namespace outboard::sim {
namespace {

using device::DeviceAccumulate;
using device::DeviceDigest;
using device::DeviceLambMoments;
using device::DeviceLambTrust;
using device::DeviceUnpack;
using device::DeviceUpdate;

Call call(const Record&) {
  return Call::record;
}
Call call(const WaitPoint&) {
  return Call::wait_event;
}
Call call(const WaitFlag&) {
  return Call::wait_flag;
}
Call call(const CopyToHost&) {
  return Call::copy_to_host;
}
Call call(const CopyToDevice&) {
  return Call::copy_to_device;
}
Call call(const CopyOnDevice&) {
  return Call::copy_on_device;
}
template <class AnyKernel>
Call call(const AnyKernel&) {
  return Call::kernel;
}

const char* name(const TrainerKernel& work) {
  return work.name;
}
const char* name(const ReduceGradient&) {
  return "reduce_gradient";
}
const char* name(const PackGradient&) {
  return "pack_gradient";
}
const char* name(const DeviceUnpack&) {
  return "unpack";
}
const char* name(const DeviceAccumulate&) {
  return "accumulate";
}
const char* name(const DeviceUpdate&) {
  return "update";
}
const char* name(const DeviceLambMoments&) {
  return "lamb_moments";
}
const char* name(const DeviceLambTrust&) {
  return "lamb_trust";
}
const char* name(const DeviceDigest&) {
  return "digest";
}
const char* name(const Fill&) {
  return "fill";
}
const char* name(const FillZero&) {
  return "fill_zero";
}
const char* name(const ToFloat&) {
  return "to_float";
}
template <class Other>
const char* name(const Other& work) {
  return to_string(call(work));
}

std::int64_t at_rate(double bytes, double bytes_per_s) {
  return bytes_per_s > 0.0 ? std::llround(bytes * 1e9 / bytes_per_s) : 0;
}

template <class Pointer>
std::size_t count(const std::array<Pointer, 2>& state) {
  return (state[0] != nullptr ? 1U : 0U) + (state[1] != nullptr ? 1U : 0U);
}
double times(std::uint64_t elems, std::size_t bytes) {
  return static_cast<double>(bytes) * static_cast<double>(elems);
}

/// Bytes of device memory a kernel reads and writes.
double touched(const ReduceGradient& work) {
  return times(work.elems, simd::format_bytes(work.grad.format));
}
double touched(const PackGradient& work) {
  return times(work.elems, 2 * simd::format_bytes(work.grad.format));
}
double touched(const DeviceUnpack& work) {
  return times(work.elems, 2 * simd::format_bytes(work.packed.format));
}
double touched(const DeviceAccumulate& work) {
  return times(work.elems, simd::format_bytes(work.grad.format) + (work.first ? 4 : 8));
}
double touched(const DeviceUpdate& work) {
  const std::size_t average = work.ema == nullptr ? 0 : 8;
  const std::size_t weight = simd::format_bytes(work.weight.format);
  if (work.lr_trust != nullptr) return times(work.elems, 8 + 8 + average + weight);
  const std::size_t gradient = simd::format_bytes(work.grad.format);
  return times(work.elems, gradient + 8 + 8 * count(work.state) + average + weight);
}
double touched(const DeviceLambMoments& work) {
  return times(work.elems, simd::format_bytes(work.grad.format) + 4 + 8 * count(work.state));
}
double touched(const DeviceLambTrust& work) {
  return times(work.blocks, sizeof(simd::BlockNorms));
}
double touched(const DeviceDigest& work) {
  return times(work.elems, 4 + 4 * count(work.state) + (work.ema == nullptr ? 0 : 4));
}
double touched(const Fill& work) {
  return times(work.elems, simd::format_bytes(work.dst.format));
}
double touched(const FillZero& work) {
  return static_cast<double>(work.bytes);
}
double touched(const ToFloat& work) {
  return times(work.elems, simd::format_bytes(work.src.format) + 4);
}
double touched(const CopyOnDevice& work) {
  return 2.0 * static_cast<double>(work.bytes);
}
template <class Other>
double touched(const Other&) {
  return 0.0;
}

// Kinds are known of the engine's kernels only: what a copy carries is known to its stream.
void describe(const CopyToHost& work, core::RecordedSpan& span) {
  span.bytes = work.dst.size();
  span.address = work.src;
}
void describe(const CopyToDevice& work, core::RecordedSpan& span) {
  span.bytes = work.src.size();
  span.address = work.dst;
}
void describe(const ReduceGradient& work, core::RecordedSpan& span) {
  span.kind = SpanKind::norm;
  span.address = work.grad.data;
}
void describe(const PackGradient& work, core::RecordedSpan& span) {
  span.kind = SpanKind::norm;
  span.address = work.grad.data;
}
void describe(const DeviceUpdate& work, core::RecordedSpan& span) {
  span.kind = SpanKind::update;
  span.address = work.weight.data;
}
template <class Other>
void describe(const Other&, core::RecordedSpan&) {}

TimelineRow row_of(Engine engine) {
  return engine == Engine::link_down ? TimelineRow::link_down
         : engine == Engine::link_up ? TimelineRow::link_up
                                     : TimelineRow::compute;
}

std::int64_t duration(const CopyToHost& work, const Rates& rates) {
  return rates.copy_latency.count() +
         at_rate(static_cast<double>(work.dst.size()), rates.link_down_bytes_per_s);
}
std::int64_t duration(const CopyToDevice& work, const Rates& rates) {
  return rates.copy_latency.count() +
         at_rate(static_cast<double>(work.src.size()), rates.link_up_bytes_per_s);
}
template <class OnDevice>
std::int64_t duration(const OnDevice& work, const Rates& rates) {
  return at_rate(touched(work), rates.device_bytes_per_s);
}

}  // namespace

Call call_of(const Work& work) noexcept {
  return std::visit([](const auto& kind) { return call(kind); }, work);
}

Engine engine_of(const Work& work) noexcept {
  switch (call_of(work)) {
    case Call::copy_to_host:
      return Engine::link_down;
    case Call::copy_to_device:
      return Engine::link_up;
    case Call::copy_on_device:
    case Call::kernel:
      return Engine::compute;
    default:
      return Engine::none;
  }
}

const char* name_of(const Work& work) noexcept {
  return std::visit([](const auto& kind) { return name(kind); }, work);
}

core::RecordedSpan span_of(const Work& work) noexcept {
  core::RecordedSpan span;
  span.row = row_of(engine_of(work));
  span.name = name_of(work);
  std::visit([&](const auto& kind) { describe(kind, span); }, work);
  return span;
}

std::int64_t duration_ns(const Work& work, const Rates& rates) {
  return std::visit([&](const auto& kind) { return duration(kind, rates); }, work);
}

}  // namespace outboard::sim
