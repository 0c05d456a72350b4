// SPDX-License-Identifier: Apache-2.0
#include "device/sim/operation.hpp"

#include <algorithm>
#include <atomic>
#include <cfenv>
#include <cmath>
#include <cstring>
#include <limits>

#include "device/sim/kernel_view.hpp"
#include "outboard/error.hpp"
#include "simd/adamw.hpp"
#include "simd/convert.hpp"
#include "simd/digest.hpp"
#include "simd/reduce.hpp"

namespace outboard::sim {
namespace {

using device::DeviceAdamW;
using device::DeviceDigest;
using device::GradientScalars;

template <class... Parts>
struct Overload : Parts... {
  using Parts::operator()...;
};
template <class... Parts>
Overload(Parts...) -> Overload<Parts...>;

/// Kernels run in the default floating-point environment, whatever the thread's is.
class DefaultFloatEnvironment {
 public:
  DefaultFloatEnvironment() {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultFloatEnvironment() { std::fesetenv(&saved_); }
  DefaultFloatEnvironment(const DefaultFloatEnvironment&) = delete;
  DefaultFloatEnvironment& operator=(const DefaultFloatEnvironment&) = delete;

 private:
  std::fenv_t saved_{};
};

std::size_t bytes_of(std::uint64_t elems, std::size_t element_bytes) {
  if (elems > std::numeric_limits<std::size_t>::max() / element_bytes) {
    throw Error(ErrorCode::invalid_argument, "device range: " + std::to_string(elems) +
                                                 " elements of " + std::to_string(element_bytes) +
                                                 " bytes are more than memory can hold");
  }
  return elems * element_bytes;
}

template <class T>
std::span<T> view(const DeviceMemory& memory, const void* address, std::uint64_t elems) {
  void* alias = memory.alias(address, bytes_of(elems, sizeof(T)), alignof(T));
  return {static_cast<T*>(alias), elems};
}

// Streams may add to one counter at the same time, as atomicAdd on a GPU.
void add_to(const DeviceMemory& memory, void* address, std::uint64_t value) {
  std::atomic_ref<std::uint64_t>(view<std::uint64_t>(memory, address, 1)[0]).fetch_add(value);
}

void run_reduce(const ReduceGradient& work, const DeviceMemory& memory) {
  const auto out = view<GradientScalars>(memory, work.scalars, 1);
  const auto reduced =
      simd::reduce_gradient(view<const std::uint16_t>(memory, work.grad_fp16, work.elems));
  out[0] = {.sum_of_squares = reduced.sum_of_squares,
            .non_finite = reduced.non_finite,
            .first_non_finite = reduced.non_finite == 0 ? 0
                                                        : (reduced.first_non_finite << 1) |
                                                              (reduced.first_is_nan ? 1u : 0u)};
}

void run_adamw(const DeviceAdamW& work, const DeviceMemory& memory) {
  const simd::AdamWShard shard{
      .grad_fp16 = view<const std::uint16_t>(memory, work.grad_fp16, work.elems),
      .param = view<float>(memory, work.param, work.elems),
      .exp_avg = view<float>(memory, work.exp_avg, work.elems),
      .exp_avg_sq = view<float>(memory, work.exp_avg_sq, work.elems),
      .weight_fp16 = view<std::uint16_t>(memory, work.weight_fp16, work.elems)};
  const std::uint64_t overflows = simd::adamw_step(shard, work.scalars);
  if (work.overflow_count != nullptr) add_to(memory, work.overflow_count, overflows);
}

void run_digest(const DeviceDigest& work, const DeviceMemory& memory) {
  const simd::DigestShard shard{
      .parameter = work.parameter,
      .first_element = work.first_element,
      .param = view<const float>(memory, work.param, work.elems),
      .exp_avg = view<const float>(memory, work.exp_avg, work.elems),
      .exp_avg_sq = view<const float>(memory, work.exp_avg_sq, work.elems)};
  add_to(memory, work.sum, simd::digest_state(shard));
}

void run_trainer(const TrainerKernel& work, const DeviceMemory& memory) {
  KernelView::Resolver resolver(memory);
  KernelView kernel_view(resolver);
  work.body(kernel_view);
}

void copy_bytes(void* dst, const void* src, std::size_t bytes) {
  if (bytes > 0) std::memcpy(dst, src, bytes);
}

std::int64_t at_rate(double bytes, double bytes_per_s) {
  return bytes_per_s > 0.0 ? std::llround(bytes * 1e9 / bytes_per_s) : 0;
}

/// Bytes of device memory a kernel reads and writes.
double bytes_touched(const Work& work) {
  return std::visit(
      Overload{[](const ReduceGradient& w) { return 2.0 * static_cast<double>(w.elems); },
               [](const DeviceAdamW& w) { return 28.0 * static_cast<double>(w.elems); },
               [](const DeviceDigest& w) { return 12.0 * static_cast<double>(w.elems); },
               [](const FillHalf& w) { return 2.0 * static_cast<double>(w.elems); },
               [](const FillZero& w) { return static_cast<double>(w.bytes); },
               [](const HalfToFloat& w) { return 6.0 * static_cast<double>(w.elems); },
               [](const CopyOnDevice& w) { return 2.0 * static_cast<double>(w.bytes); },
               [](const auto&) { return 0.0; }},
      work);
}

}  // namespace

Call call_of(const Work& work) noexcept {
  return std::visit(Overload{[](const Record&) { return Call::record; },
                             [](const WaitPoint&) { return Call::wait_event; },
                             [](const WaitFlag&) { return Call::wait_flag; },
                             [](const CopyToHost&) { return Call::copy_to_host; },
                             [](const CopyToDevice&) { return Call::copy_to_device; },
                             [](const CopyOnDevice&) { return Call::copy_on_device; },
                             [](const auto&) { return Call::kernel; }},
                    work);
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
  return std::visit(Overload{[](const TrainerKernel& w) { return w.name; },
                             [](const ReduceGradient&) { return "reduce_gradient"; },
                             [](const DeviceAdamW&) { return "adamw"; },
                             [](const DeviceDigest&) { return "digest"; },
                             [](const FillHalf&) { return "fill_half"; },
                             [](const FillZero&) { return "fill_zero"; },
                             [](const HalfToFloat&) { return "half_to_float"; },
                             [&](const auto&) { return to_string(call_of(work)); }},
                    work);
}

std::int64_t duration_ns(const Work& work, const Rates& rates) {
  const std::int64_t latency = rates.copy_latency.count();
  return std::visit(
      Overload{[&](const CopyToHost& w) {
                 return latency +
                        at_rate(static_cast<double>(w.dst.size()), rates.link_down_bytes_per_s);
               },
               [&](const CopyToDevice& w) {
                 return latency +
                        at_rate(static_cast<double>(w.src.size()), rates.link_up_bytes_per_s);
               },
               [&](const auto&) { return at_rate(bytes_touched(work), rates.device_bytes_per_s); }},
      work);
}

void check_ranges(const Work& work, const DeviceMemory& memory) {
  const auto check = [&](const void* address, std::uint64_t elems, std::size_t element_bytes) {
    (void)memory.alias(address, bytes_of(elems, element_bytes), element_bytes);
  };
  const auto check_bytes = [&](const void* address, std::size_t bytes) {
    (void)memory.alias(address, bytes);
  };
  std::visit(
      Overload{[&](const CopyToHost& w) { check_bytes(w.src, w.dst.size()); },
               [&](const CopyToDevice& w) { check_bytes(w.dst, w.src.size()); },
               [&](const CopyOnDevice& w) {
                 check_bytes(w.src, w.bytes);
                 check_bytes(w.dst, w.bytes);
               },
               [&](const ReduceGradient& w) {
                 check(w.grad_fp16, w.elems, 2);
                 (void)memory.alias(w.scalars, sizeof(GradientScalars), 8);
               },
               [&](const DeviceAdamW& w) {
                 for (const void* half : {w.grad_fp16, static_cast<const void*>(w.weight_fp16)})
                   check(half, w.elems, 2);
                 for (const void* full : {w.param, w.exp_avg, w.exp_avg_sq})
                   check(full, w.elems, 4);
                 check(w.overflow_count, w.overflow_count == nullptr ? 0 : 1, 8);
               },
               [&](const DeviceDigest& w) {
                 for (const void* full : {w.param, w.exp_avg, w.exp_avg_sq})
                   check(full, w.elems, 4);
                 check(w.sum, 1, 8);
               },
               [&](const FillHalf& w) { check(w.dst, w.elems, 2); },
               [&](const FillZero& w) { check_bytes(w.dst, w.bytes); },
               [&](const HalfToFloat& w) {
                 check(w.dst_fp32, w.elems, 4);
                 check(w.src_fp16, w.elems, 2);
               },
               [](const auto&) {}},
      work);
}

void run(const Work& work, const DeviceMemory& memory) {
  const DefaultFloatEnvironment environment;
  std::visit(
      Overload{[](const auto&) {},
               [&](const CopyToHost& w) {
                 copy_bytes(w.dst.data(), memory.alias(w.src, w.dst.size()), w.dst.size());
               },
               [&](const CopyToDevice& w) {
                 copy_bytes(memory.alias(w.dst, w.src.size()), w.src.data(), w.src.size());
               },
               [&](const CopyOnDevice& w) {
                 copy_bytes(memory.alias(w.dst, w.bytes), memory.alias(w.src, w.bytes), w.bytes);
               },
               [&](const TrainerKernel& w) { run_trainer(w, memory); },
               [&](const ReduceGradient& w) { run_reduce(w, memory); },
               [&](const DeviceAdamW& w) { run_adamw(w, memory); },
               [&](const DeviceDigest& w) { run_digest(w, memory); },
               [&](const FillHalf& w) {
                 std::ranges::fill(view<std::uint16_t>(memory, w.dst, w.elems), w.bits);
               },
               [&](const FillZero& w) { std::memset(memory.alias(w.dst, w.bytes), 0, w.bytes); },
               [&](const HalfToFloat& w) {
                 simd::half_to_float(view<const std::uint16_t>(memory, w.src_fp16, w.elems),
                                     view<float>(memory, w.dst_fp32, w.elems));
               }},
      work);
}

}  // namespace outboard::sim
