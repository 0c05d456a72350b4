// SPDX-License-Identifier: Apache-2.0
#include "device/sim/operation.hpp"

#include <cmath>

namespace outboard::sim {
namespace {

using device::DeviceAccumulate;
using device::DeviceAdamW;
using device::DeviceDigest;

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
const char* name(const ReduceSums&) {
  return "reduce_sums";
}
const char* name(const DeviceAccumulate&) {
  return "accumulate";
}
const char* name(const DeviceAdamW&) {
  return "adamw";
}
const char* name(const DeviceDigest&) {
  return "digest";
}
const char* name(const FillHalf&) {
  return "fill_half";
}
const char* name(const FillZero&) {
  return "fill_zero";
}
const char* name(const HalfToFloat&) {
  return "half_to_float";
}
template <class Other>
const char* name(const Other& work) {
  return to_string(call(work));
}

std::int64_t at_rate(double bytes, double bytes_per_s) {
  return bytes_per_s > 0.0 ? std::llround(bytes * 1e9 / bytes_per_s) : 0;
}

/// Bytes of device memory a kernel reads and writes.
double touched(const ReduceGradient& work) {
  return 2.0 * static_cast<double>(work.elems);
}
double touched(const ReduceSums& work) {
  return 4.0 * static_cast<double>(work.elems);
}
double touched(const DeviceAccumulate& work) {
  return (work.first ? 6.0 : 10.0) * static_cast<double>(work.elems);
}
double touched(const DeviceAdamW& work) {
  return (work.grad_fp32 == nullptr ? 28.0 : 30.0) * static_cast<double>(work.elems);
}
double touched(const DeviceDigest& work) {
  return 12.0 * static_cast<double>(work.elems);
}
double touched(const FillHalf& work) {
  return 2.0 * static_cast<double>(work.elems);
}
double touched(const FillZero& work) {
  return static_cast<double>(work.bytes);
}
double touched(const HalfToFloat& work) {
  return 6.0 * static_cast<double>(work.elems);
}
double touched(const CopyOnDevice& work) {
  return 2.0 * static_cast<double>(work.bytes);
}
template <class Other>
double touched(const Other&) {
  return 0.0;
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

std::int64_t duration_ns(const Work& work, const Rates& rates) {
  return std::visit([&](const auto& kind) { return duration(kind, rates); }, work);
}

}  // namespace outboard::sim
