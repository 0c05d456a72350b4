// SPDX-License-Identifier: Apache-2.0
// What operations do to memory: one check and one effect for each kind.
#include <algorithm>
#include <atomic>
#include <cfenv>
#include <cstring>
#include <limits>
#include <string>

#include "device/sim/kernel_view.hpp"
#include "device/sim/operation.hpp"
#include "outboard/error.hpp"
#include "simd/accumulate.hpp"
#include "simd/adamw.hpp"
#include "simd/convert.hpp"
#include "simd/digest.hpp"
#include "simd/reduce.hpp"

namespace outboard::sim {
namespace {

using device::DeviceAccumulate;
using device::DeviceAdamW;
using device::DeviceDigest;
using device::GradientScalars;

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

template <class T>
std::span<T> view(const DeviceMemory& memory, const void* address, std::uint64_t elems) {
  if (elems > std::numeric_limits<std::size_t>::max() / sizeof(T)) {
    throw Error(ErrorCode::invalid_argument, "device range: " + std::to_string(elems) +
                                                 " elements of " + std::to_string(sizeof(T)) +
                                                 " bytes are more than memory can hold");
  }
  return {static_cast<T*>(memory.alias(address, elems * sizeof(T), alignof(T))), elems};
}

// Streams may add to one counter at the same time, as atomicAdd on a GPU.
void add_to(std::span<std::uint64_t> counter, std::uint64_t value) {
  for (std::uint64_t& word : counter) std::atomic_ref<std::uint64_t>(word).fetch_add(value);
}

struct ReduceViews {
  std::span<const std::uint16_t> gradient;
  GradientScalars& scalars;
};
ReduceViews views(const ReduceGradient& work, const DeviceMemory& memory) {
  return {view<const std::uint16_t>(memory, work.grad_fp16, work.elems),
          view<GradientScalars>(memory, work.scalars, 1)[0]};
}

struct ReduceSumsViews {
  std::span<const float> sums;
  GradientScalars& scalars;
};
ReduceSumsViews views(const ReduceSums& work, const DeviceMemory& memory) {
  return {view<const float>(memory, work.sum_fp32, work.elems),
          view<GradientScalars>(memory, work.scalars, 1)[0]};
}

simd::AccumulateShard views(const DeviceAccumulate& work, const DeviceMemory& memory) {
  return {{view<const std::uint16_t>(memory, work.grad_fp16, work.elems).data(), simd::Format::f16},
          view<float>(memory, work.sum_fp32, work.elems),
          work.first};
}

struct AdamWViews {
  simd::AdamWShard shard;
  std::span<std::uint64_t> overflow_count;
};
AdamWViews views(const DeviceAdamW& work, const DeviceMemory& memory) {
  const bool sums = work.grad_fp32 != nullptr;
  return {{.grad_fp16 = view<const std::uint16_t>(memory, work.grad_fp16, sums ? 0 : work.elems),
           .param = view<float>(memory, work.param, work.elems),
           .exp_avg = view<float>(memory, work.exp_avg, work.elems),
           .exp_avg_sq = view<float>(memory, work.exp_avg_sq, work.elems),
           .weight_fp16 = view<std::uint16_t>(memory, work.weight_fp16, work.elems),
           .grad_fp32 = view<const float>(memory, work.grad_fp32, sums ? work.elems : 0)},
          view<std::uint64_t>(memory, work.overflow_count, work.overflow_count == nullptr ? 0 : 1)};
}

struct DigestViews {
  simd::DigestShard shard;
  std::span<std::uint64_t> sum;
};
DigestViews views(const DeviceDigest& work, const DeviceMemory& memory) {
  return {{.parameter = work.parameter,
           .first_element = work.first_element,
           .param = view<const float>(memory, work.param, work.elems),
           .state = {view<const float>(memory, work.exp_avg, work.elems),
                     view<const float>(memory, work.exp_avg_sq, work.elems)}},
          view<std::uint64_t>(memory, work.sum, 1)};
}

struct ConvertViews {
  std::span<const std::uint16_t> half;
  std::span<float> full;
};
ConvertViews views(const HalfToFloat& work, const DeviceMemory& memory) {
  return {view<const std::uint16_t>(memory, work.src_fp16, work.elems),
          view<float>(memory, work.dst_fp32, work.elems)};
}

std::span<std::uint16_t> views(const FillHalf& work, const DeviceMemory& memory) {
  return view<std::uint16_t>(memory, work.dst, work.elems);
}
std::span<std::byte> views(const FillZero& work, const DeviceMemory& memory) {
  return view<std::byte>(memory, work.dst, work.bytes);
}

struct CopyViews {
  std::span<std::byte> dst;
  std::span<const std::byte> src;
};
CopyViews views(const CopyToHost& work, const DeviceMemory& memory) {
  return {work.dst, view<const std::byte>(memory, work.src, work.dst.size())};
}
CopyViews views(const CopyToDevice& work, const DeviceMemory& memory) {
  return {view<std::byte>(memory, work.dst, work.src.size()), work.src};
}
CopyViews views(const CopyOnDevice& work, const DeviceMemory& memory) {
  return {view<std::byte>(memory, work.dst, work.bytes),
          view<const std::byte>(memory, work.src, work.bytes)};
}

// Records and waits touch no memory; a trainer's kernel asks for its ranges as it runs.
struct NoViews {};
template <class Other>
NoViews views(const Other& /*work*/, const DeviceMemory& /*memory*/) {
  return {};
}

template <class Other>
void apply(const Other& /*work*/, NoViews /*views*/) {}
template <class Copy>
void apply(const Copy& /*work*/, const CopyViews& copy) {
  if (!copy.src.empty()) std::memcpy(copy.dst.data(), copy.src.data(), copy.src.size());
}
GradientScalars scalars_of(const simd::GradientReduction& found) {
  const std::uint64_t first = (found.first_non_finite << 1) | (found.first_is_nan ? 1u : 0u);
  return {.sum_of_squares = found.sum_of_squares,
          .non_finite = found.non_finite,
          .first_non_finite = found.non_finite == 0 ? 0 : first};
}
void apply(const ReduceGradient& /*work*/, const ReduceViews& reduce) {
  reduce.scalars = scalars_of(simd::reduce_gradient(reduce.gradient));
}
void apply(const ReduceSums& /*work*/, const ReduceSumsViews& reduce) {
  reduce.scalars = scalars_of(simd::reduce_gradient(reduce.sums));
}
void apply(const DeviceAccumulate& /*work*/, const simd::AccumulateShard& shard) {
  simd::accumulate(shard);
}
void apply(const DeviceAdamW& work, const AdamWViews& adamw) {
  add_to(adamw.overflow_count, simd::adamw_step(adamw.shard, work.scalars));
}
void apply(const DeviceDigest& /*work*/, const DigestViews& digest) {
  add_to(digest.sum, simd::digest_state(digest.shard));
}
void apply(const FillHalf& work, std::span<std::uint16_t> dst) {
  std::ranges::fill(dst, work.bits);
}
void apply(const FillZero& /*work*/, std::span<std::byte> dst) {
  std::ranges::fill(dst, std::byte{0});
}
void apply(const HalfToFloat& /*work*/, const ConvertViews& convert) {
  simd::half_to_float(convert.half, convert.full);
}

}  // namespace

void check_ranges(const Work& work, const DeviceMemory& memory) {
  std::visit([&](const auto& kind) { (void)views(kind, memory); }, work);
}

void run(const Work& work, const DeviceMemory& memory) {
  const DefaultFloatEnvironment environment;
  if (const auto* trainer = std::get_if<TrainerKernel>(&work)) {
    KernelView::Resolver resolver(memory);
    KernelView kernel_view(resolver);
    return trainer->body(kernel_view);
  }
  std::visit([&](const auto& kind) { apply(kind, views(kind, memory)); }, work);
}

}  // namespace outboard::sim
