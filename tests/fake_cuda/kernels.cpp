// SPDX-License-Identifier: Apache-2.0
// The device's kernels by name: their own threads' code, compiled for the host and run one thread
// after the other, so that whatever runs on the stand-in tests it.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <functional>

#include "device/backend.hpp"
#include "device/cuda/kernels/bodies.hpp"
#include "fake_cuda/machine.hpp"
#include "outboard/error.hpp"
#include "simd/reduce.hpp"
#include "simd/rules/lamb_trust.hpp"

namespace outboard::fake_cuda {
namespace {

using namespace device::cuda;
using sim::KernelView;

std::size_t bytes_of(ElementFormat format) {
  return simd::format_bytes(static_cast<simd::Format>(format));
}

template <class T>
std::span<T> optional(KernelView& view, const void* address, std::uint64_t count) {
  return address == nullptr ? std::span<T>() : view.as<T>(address, count);
}
void add_to(std::span<std::uint64_t> counter, std::uint64_t value) {
  for (std::uint64_t& word : counter) std::atomic_ref<std::uint64_t>(word).fetch_add(value);
}

/// The host's alias of a device address; null stays null.
template <class T>
T* alias(KernelView& view, T* address, std::uint64_t count) {
  return address == nullptr ? nullptr : view.as<T>(address, count).data();
}
const void* alias(KernelView& view, const void* address, std::uint64_t elems,
                  ElementFormat format) {
  return alias(view, static_cast<const std::byte*>(address), elems * bytes_of(format));
}
void* alias(KernelView& view, void* address, std::uint64_t elems, ElementFormat format) {
  return alias(view, static_cast<std::byte*>(address), elems * bytes_of(format));
}

/// As many threads as make several of them walk on, and some find nothing.
template <class Part>
void on_threads(Part part) {
  constexpr std::uint64_t kThreads = 7;
  for (std::uint64_t thread = 0; thread < kThreads; ++thread) {
    part(kernels::Place{thread, kThreads});
  }
}

/// 64 lanes to one, by halves.
template <class Value>
double fold(std::array<Value, kTreeLanes>& lanes, double Value::*sum) {
  for (std::size_t half = kTreeLanes / 2; half > 0; half /= 2) {
    for (std::size_t l = 0; l < half; ++l) lanes[l].*sum += lanes[l + half].*sum;
  }
  return lanes[0].*sum;
}

void run(ReduceArguments work, KernelView& view) {
  const std::uint64_t rows = simd::reduce_block_count(work.elems);
  work.grad = alias(view, work.grad, work.elems, work.format);
  work.packed = alias(view, work.packed, work.elems, work.format);
  work.blocks = alias(view, work.blocks, rows);
  for (std::uint64_t row = 0; row < rows; ++row) {
    std::array<kernels::LaneScalars, kTreeLanes> lanes{};
    BlockScalars& block = work.blocks[row] = {0.0, 0, ~0ULL};
    for (std::uint32_t l = 0; l < kTreeLanes; ++l) {
      lanes[l] = kernels::reduce_lane(work, row, l);
      block.non_finite += lanes[l].non_finite;
      block.first_non_finite = std::min(block.first_non_finite, lanes[l].first_non_finite);
    }
    block.sum_of_squares = fold(lanes, &kernels::LaneScalars::sum);
  }
}

void run(const ReduceBlocksArguments& work, KernelView& view) {
  auto& scalars = view.as<device::GradientScalars>(work.scalars, 1)[0];
  if (work.first) scalars = {};
  for (const BlockScalars& block : view.as<const BlockScalars>(work.blocks, work.count)) {
    scalars.sum_of_squares += block.sum_of_squares;
    if (scalars.non_finite == 0 && block.non_finite > 0) {
      scalars.first_non_finite = block.first_non_finite;
    }
    scalars.non_finite += block.non_finite;
  }
}

void run(const UnpackArguments& work, KernelView& view) {
  const std::size_t size = work.element_bytes;
  for (const auto& entry : view.as<const device::PackedWeight>(work.weights, work.count)) {
    const auto* const from = static_cast<const std::byte*>(work.packed) + entry.offset * size;
    const auto source = view.as<const std::byte>(from, entry.elems * size);
    const auto to = view.as<std::byte>(entry.weight, entry.elems * size);
    if (!to.empty()) std::memcpy(to.data(), source.data(), to.size());
  }
}

void run(AccumulateArguments work, KernelView& view) {
  work.grad = alias(view, work.grad, work.elems, work.format);
  work.sum = alias(view, work.sum, work.elems);
  on_threads([&](const kernels::Place& place) { kernels::accumulate_part(work, place); });
}

template <class RuleScalars>
void run(UpdateArguments<RuleScalars> work, KernelView& view) {
  // The second phase of LAMB has the gradient in its moments and reads it no more.
  work.grad =
      work.lr_trust == nullptr ? alias(view, work.grad, work.elems, work.grad_format) : nullptr;
  work.weight = alias(view, work.weight, work.elems, work.weight_format);
  for (float** stream : {&work.param, &work.state0, &work.state1, &work.ema}) {
    *stream = alias(view, *stream, work.elems);
  }
  work.lr_trust = alias(view, work.lr_trust, 1);
  std::uint64_t overflowed = 0;
  on_threads([&](const kernels::Place& place) { overflowed += kernels::update_part(work, place); });
  add_to(optional<std::uint64_t>(view, work.overflow_count, 1), overflowed);
}

void run(LambMomentsArguments work, KernelView& view) {
  const std::uint64_t rows = simd::reduce_block_count(work.elems);
  work.grad = alias(view, work.grad, work.elems, work.grad_format);
  work.param = alias(view, work.param, work.elems);
  work.exp_avg = alias(view, work.exp_avg, work.elems);
  work.exp_avg_sq = alias(view, work.exp_avg_sq, work.elems);
  const auto norms = view.as<simd::BlockNorms>(work.norms, rows);
  for (std::uint64_t row = 0; row < rows; ++row) {
    std::array<simd::BlockNorms, kTreeLanes> lanes{};
    for (std::uint32_t l = 0; l < kTreeLanes; ++l) lanes[l] = kernels::lamb_lane(work, row, l);
    norms[row] = {fold(lanes, &simd::BlockNorms::param), fold(lanes, &simd::BlockNorms::update)};
  }
}

void run(const LambTrustArguments& work, KernelView& view) {
  view.as<float>(work.lr_trust, 1)[0] =
      simd::lamb_lr_trust(work.lr, view.as<const simd::BlockNorms>(work.norms, work.blocks));
}

void run(DigestArguments work, KernelView& view) {
  for (const float** stream : {&work.param, &work.state0, &work.state1, &work.ema}) {
    *stream = alias(view, *stream, work.elems);
  }
  std::uint64_t sum = 0;
  on_threads([&](const kernels::Place& place) { sum += kernels::digest_part(work, place); });
  add_to(view.as<std::uint64_t>(work.sum, 1), sum);
}

void run(ToFloatArguments work, KernelView& view) {
  work.src = alias(view, work.src, work.elems, work.format);
  work.dst = alias(view, work.dst, work.elems);
  on_threads([&](const kernels::Place& place) { kernels::to_float_part(work, place); });
}

struct Entry {
  std::size_t bytes;
  std::function<void(const void*, KernelView&)> run;
};
template <class Arguments>
Entry entry() {
  return {sizeof(Arguments), [](const void* raw, KernelView& view) {
            Arguments arguments;
            std::memcpy(&arguments, raw, sizeof arguments);
            run(arguments, view);
          }};
}

const std::map<std::string, Entry>& table() {
  static const std::map<std::string, Entry> kernels = {
      {"outboard_reduce", entry<ReduceArguments>()},
      {"outboard_reduce_blocks", entry<ReduceBlocksArguments>()},
      {"outboard_unpack", entry<UnpackArguments>()},
      {"outboard_accumulate", entry<AccumulateArguments>()},
      {"outboard_update_adamw", entry<UpdateArguments<simd::AdamWScalars>>()},
      {"outboard_update_adam", entry<UpdateArguments<simd::AdamScalars>>()},
      {"outboard_update_sgd", entry<UpdateArguments<simd::SgdScalars>>()},
      {"outboard_update_lion", entry<UpdateArguments<simd::LionScalars>>()},
      {"outboard_update_adagrad", entry<UpdateArguments<simd::AdagradScalars>>()},
      {"outboard_update_lamb", entry<UpdateArguments<simd::LambScalars>>()},
      {"outboard_lamb_moments", entry<LambMomentsArguments>()},
      {"outboard_lamb_trust", entry<LambTrustArguments>()},
      {"outboard_digest", entry<DigestArguments>()},
      {"outboard_to_float", entry<ToFloatArguments>()}};
  return kernels;
}

}  // namespace

bool is_kernel(const std::string& name) {
  return table().contains(name) || is_gpt_kernel(name);
}
std::size_t argument_bytes(const std::string& name) {
  return is_gpt_kernel(name) ? gpt_argument_bytes(name) : table().at(name).bytes;
}
void run_kernel(const std::string& name, const void* arguments, const LaunchSize& size,
                KernelView& view) {
  if (is_gpt_kernel(name)) return run_gpt_kernel(name, arguments, size, view);
  table().at(name).run(arguments, view);
}

}  // namespace outboard::fake_cuda
