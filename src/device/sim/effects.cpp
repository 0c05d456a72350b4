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
#include "simd/convert.hpp"
#include "simd/digest.hpp"
#include "simd/reduce.hpp"
#include "simd/rules/lamb_trust.hpp"
#include "simd/update.hpp"

namespace outboard::sim {
namespace {

using device::DeviceAccumulate;
using device::DeviceDigest;
using device::DeviceLambMoments;
using device::DeviceLambTrust;
using device::DeviceUnpack;
using device::DeviceUpdate;
using device::GradientScalars;
using device::PackedWeight;

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

/// None for a null address, which says that there is no such memory.
template <class T>
std::span<T> optional_view(const DeviceMemory& memory, const void* address, std::uint64_t elems) {
  return address == nullptr ? std::span<T>() : view<T>(memory, address, elems);
}

template <class Element>
auto* elements_view(const DeviceMemory& memory, const void* address, std::uint64_t elems) {
  return view<Element>(memory, address, elems).data();
}
simd::ConstElements view(const DeviceMemory& memory, simd::ConstElements at, std::uint64_t elems) {
  if (at.format == simd::Format::f32) {
    return {elements_view<const float>(memory, at.data, elems), at.format};
  }
  return {elements_view<const std::uint16_t>(memory, at.data, elems), at.format};
}
simd::Elements view(const DeviceMemory& memory, simd::Elements at, std::uint64_t elems) {
  if (at.format == simd::Format::f32) {
    return {elements_view<float>(memory, at.data, elems), at.format};
  }
  return {elements_view<std::uint16_t>(memory, at.data, elems), at.format};
}

struct ReduceViews {
  simd::ConstElements gradient;
  GradientScalars& scalars;
};
ReduceViews views(const ReduceGradient& work, const DeviceMemory& memory) {
  return {view(memory, work.grad, work.elems), view<GradientScalars>(memory, work.scalars, 1)[0]};
}

struct PackViews {
  ReduceViews reduce;
  simd::Elements packed;
};
PackViews views(const PackGradient& work, const DeviceMemory& memory) {
  return {views(ReduceGradient{work.grad, work.elems, work.scalars}, memory),
          view(memory, simd::Elements{work.packed, work.grad.format}, work.elems)};
}

/// Where the weights lie is read from device memory, and only as the kernel runs.
struct UnpackViews {
  std::span<const std::byte> packed;
  std::span<const PackedWeight> weights;
  const DeviceMemory& memory;
};
UnpackViews views(const DeviceUnpack& work, const DeviceMemory& memory) {
  const auto packed = view(memory, work.packed, work.elems);
  return {
      {static_cast<const std::byte*>(packed.data), work.elems * simd::format_bytes(packed.format)},
      view<const PackedWeight>(memory, work.weights, work.count),
      memory};
}

simd::AccumulateShard views(const DeviceAccumulate& work, const DeviceMemory& memory) {
  return {view(memory, work.grad, work.elems), view<float>(memory, work.sum_fp32, work.elems),
          work.first};
}

struct UpdateViews {
  simd::UpdateShard shard;
  std::span<std::uint64_t> overflow_count;
  std::span<const float> lr_trust;
};
UpdateViews views(const DeviceUpdate& work, const DeviceMemory& memory) {
  // The second phase of LAMB has the gradient in its moments and reads it no more.
  const bool reads_gradient = work.lr_trust == nullptr;
  return {{.grad = reads_gradient ? view(memory, work.grad, work.elems) : simd::ConstElements{},
           .weight = view(memory, work.weight, work.elems),
           .param = view<float>(memory, work.param, work.elems),
           .state = {optional_view<float>(memory, work.state[0], work.elems),
                     optional_view<float>(memory, work.state[1], work.elems)},
           .ema = optional_view<float>(memory, work.ema, work.elems),
           .first_element = work.first_element},
          optional_view<std::uint64_t>(memory, work.overflow_count, 1),
          optional_view<const float>(memory, work.lr_trust, 1)};
}

struct LambMomentsViews {
  simd::UpdateShard shard;
  std::span<simd::BlockNorms> norms;
};
LambMomentsViews views(const DeviceLambMoments& work, const DeviceMemory& memory) {
  return {{.grad = view(memory, work.grad, work.elems),
           .weight = {},
           .param = view<float>(memory, work.param, work.elems),
           .state = {view<float>(memory, work.state[0], work.elems),
                     view<float>(memory, work.state[1], work.elems)}},
          view<simd::BlockNorms>(memory, work.norms, simd::reduce_block_count(work.elems))};
}

struct LambTrustViews {
  std::span<const simd::BlockNorms> norms;
  float& lr_trust;
};
LambTrustViews views(const DeviceLambTrust& work, const DeviceMemory& memory) {
  return {view<const simd::BlockNorms>(memory, work.norms, work.blocks),
          view<float>(memory, work.lr_trust, 1)[0]};
}

struct DigestViews {
  simd::DigestShard shard;
  std::span<std::uint64_t> sum;
};
DigestViews views(const DeviceDigest& work, const DeviceMemory& memory) {
  return {{.parameter = work.parameter,
           .first_element = work.first_element,
           .param = view<const float>(memory, work.param, work.elems),
           .state = {optional_view<const float>(memory, work.state[0], work.elems),
                     optional_view<const float>(memory, work.state[1], work.elems)},
           .ema = optional_view<const float>(memory, work.ema, work.elems)},
          view<std::uint64_t>(memory, work.sum, 1)};
}

struct ConvertViews {
  simd::ConstElements from;
  std::span<float> full;
};
ConvertViews views(const ToFloat& work, const DeviceMemory& memory) {
  return {view(memory, work.src, work.elems), view<float>(memory, work.dst_fp32, work.elems)};
}

simd::Elements views(const Fill& work, const DeviceMemory& memory) {
  return view(memory, work.dst, work.elems);
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
void apply(const ReduceGradient& work, const ReduceViews& reduce) {
  reduce.scalars = scalars_of(simd::reduce_gradient(reduce.gradient, work.elems));
}
void apply(const PackGradient& work, const PackViews& pack) {
  const simd::ConstElements grad = pack.reduce.gradient;
  apply(ReduceGradient{work.grad, work.elems, work.scalars}, pack.reduce);
  std::memcpy(pack.packed.data, grad.data, work.elems * simd::format_bytes(grad.format));
}
void apply(const DeviceUnpack& work, const UnpackViews& unpack) {
  const std::size_t size = simd::format_bytes(work.packed.format);
  for (const PackedWeight& entry : unpack.weights) {
    if (entry.offset > work.elems || entry.elems > work.elems - entry.offset) {
      throw Error(ErrorCode::invalid_argument,
                  "unpack: " + std::to_string(entry.elems) + " elements from " +
                      std::to_string(entry.offset) + " on are not inside a packed range of " +
                      std::to_string(work.elems));
    }
    const simd::Elements to =
        view(unpack.memory, simd::Elements{entry.weight, work.packed.format}, entry.elems);
    const auto from = unpack.packed.subspan(entry.offset * size, entry.elems * size);
    if (!from.empty()) std::memcpy(to.data, from.data(), from.size());
  }
}
void apply(const DeviceAccumulate& /*work*/, const simd::AccumulateShard& shard) {
  simd::accumulate(shard);
}
void apply(const DeviceUpdate& work, const UpdateViews& update) {
  simd::RuleScalars scalars = work.scalars;
  if (!update.lr_trust.empty()) {
    std::get<simd::LambScalars>(scalars).lr_trust = update.lr_trust.front();
  }
  add_to(update.overflow_count, simd::update(update.shard, scalars, work.options));
}
void apply(const DeviceLambMoments& work, const LambMomentsViews& moments) {
  simd::lamb_moments(moments.shard, work.scalars, moments.norms);
}
void apply(const DeviceLambTrust& work, const LambTrustViews& trust) {
  trust.lr_trust = simd::lamb_lr_trust(work.lr, trust.norms);
}
void apply(const DeviceDigest& /*work*/, const DigestViews& digest) {
  add_to(digest.sum, simd::digest_state(digest.shard));
}
void apply(const Fill& work, simd::Elements dst) {
  if (dst.format == simd::Format::f32) {
    std::fill_n(static_cast<std::uint32_t*>(dst.data), work.elems, work.bits);
  } else {
    std::fill_n(static_cast<std::uint16_t*>(dst.data), work.elems,
                static_cast<std::uint16_t>(work.bits));
  }
}
void apply(const FillZero& /*work*/, std::span<std::byte> dst) {
  std::ranges::fill(dst, std::byte{0});
}
void apply(const ToFloat& /*work*/, const ConvertViews& convert) {
  simd::to_float(convert.from, convert.full);
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
