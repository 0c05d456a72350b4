// SPDX-License-Identifier: Apache-2.0
// Copies and kernels.
#include <algorithm>
#include <variant>

#include "device/cuda/cuda_backend.hpp"
#include "outboard/error.hpp"

namespace outboard::device::cuda {
namespace {

CUdeviceptr address_of(const void* pointer) {
  return reinterpret_cast<CUdeviceptr>(pointer);
}
ElementFormat format_of(simd::Format format) {
  return static_cast<ElementFormat>(format);
}
std::uint64_t tree_blocks(std::uint64_t elems) {
  return elems / kTreeBlockElems + (elems % kTreeBlockElems != 0 ? 1 : 0);
}

constexpr KernelName kernel_of(const simd::AdamWScalars&) {
  return KernelName::update_adamw;
}
constexpr KernelName kernel_of(const simd::AdamScalars&) {
  return KernelName::update_adam;
}
constexpr KernelName kernel_of(const simd::SgdScalars&) {
  return KernelName::update_sgd;
}
constexpr KernelName kernel_of(const simd::LionScalars&) {
  return KernelName::update_lion;
}
constexpr KernelName kernel_of(const simd::AdagradScalars&) {
  return KernelName::update_adagrad;
}
constexpr KernelName kernel_of(const simd::LambScalars&) {
  return KernelName::update_lamb;
}

}  // namespace

// --- copies ---

void CudaBackend::queue_copy_to_host(std::span<std::byte> host_dst, const void* device_src,
                                     NativeStream stream) {
  const Lock lock(mutex_);
  require_sound("copy_to_host");
  const Current current(context_);
  CUstream on = stream_of(stream, "copy_to_host");
  check_device_range(device_src, host_dst.size());
  if (host_dst.empty()) return;
  require(api_.copy_to_host(host_dst.data(), address_of(device_src), host_dst.size(), on),
          "cuMemcpyDtoHAsync_v2", {"bytes", host_dst.size()});
}

void CudaBackend::queue_copy_to_device(void* device_dst, std::span<const std::byte> host_src,
                                       NativeStream stream) {
  const Lock lock(mutex_);
  require_sound("copy_to_device");
  const Current current(context_);
  CUstream on = stream_of(stream, "copy_to_device");
  check_device_range(device_dst, host_src.size());
  if (host_src.empty()) return;
  require(api_.copy_to_device(address_of(device_dst), host_src.data(), host_src.size(), on),
          "cuMemcpyHtoDAsync_v2", {"bytes", host_src.size()});
}

void CudaBackend::copy_on_device(void* device_dst, const void* device_src, std::size_t bytes,
                                 NativeStream stream) {
  const Lock lock(mutex_);
  require_sound("copy_on_device");
  const Current current(context_);
  CUstream on = stream_of(stream, "copy_on_device");
  check_device_range(device_dst, bytes);
  check_device_range(device_src, bytes);
  if (bytes == 0) return;
  require(api_.copy_on_device(address_of(device_dst), address_of(device_src), bytes, on),
          "cuMemcpyDtoDAsync_v2", {"bytes", bytes});
}

void CudaBackend::fill(NativeStream stream, simd::Elements dst, std::uint64_t elems,
                       std::uint32_t bits) {
  const Lock lock(mutex_);
  require_sound("fill");
  const Current current(context_);
  CUstream on = stream_of(stream, "fill");
  check_elements({dst.data, dst.format}, elems);
  if (elems == 0) return;
  if (dst.format == simd::Format::f32) {
    require(api_.set_words(address_of(dst.data), bits, elems, on), "cuMemsetD32Async");
  } else {
    require(api_.set_halves(address_of(dst.data), static_cast<unsigned short>(bits), elems, on),
            "cuMemsetD16Async");
  }
}

void CudaBackend::fill_zero(NativeStream stream, void* dst, std::size_t bytes) {
  const Lock lock(mutex_);
  require_sound("fill_zero");
  const Current current(context_);
  CUstream on = stream_of(stream, "fill_zero");
  check_device_range(dst, bytes);
  if (bytes == 0) return;
  require(api_.set_bytes(address_of(dst), 0, bytes, on), "cuMemsetD8Async", {"bytes", bytes});
}

const Kernels& CudaBackend::kernels(const char* call) const {
  if (kernels_ != nullptr) return *kernels_;
  throw Error(ErrorCode::unsupported, std::string(call) + ": no kernels: " + why_no_kernels_);
}

// --- the norm ---

void CudaBackend::reduce_gradient(NativeStream stream, simd::ConstElements grad,
                                  std::uint64_t elems, void* scalars) {
  reduce(stream, grad, elems, nullptr, scalars, "reduce_gradient");
}

void CudaBackend::pack_gradient(NativeStream stream, simd::ConstElements grad, std::uint64_t elems,
                                void* packed, void* scalars) {
  reduce(stream, grad, elems, packed, scalars, "pack_gradient");
}

/// In as many rounds as the lane's room for block sums asks for; sums are added in order all along.
void CudaBackend::reduce(NativeStream stream, simd::ConstElements grad, std::uint64_t elems,
                         void* packed, void* scalars, const char* call) {
  const Lock lock(mutex_);
  require_sound(call);
  const Current current(context_);
  CUstream on = stream_of(stream, call);
  check_elements(grad, elems);
  if (packed != nullptr) check_elements({packed, grad.format}, elems);
  check_device_range(scalars, sizeof(GradientScalars));
  if (kernels_ == nullptr) {
    host_norm_.queue(on, lane_of(stream).norm, grad, elems, scalars);
    if (packed == nullptr || elems == 0) return;
    const std::size_t bytes = elems * simd::format_bytes(grad.format);
    return require(api_.copy_on_device(address_of(packed), address_of(grad.data), bytes, on),
                   "cuMemcpyDtoDAsync_v2", {"bytes", bytes});
  }
  auto* const blocks = static_cast<BlockScalars*>(pointer_of(lane_of(stream).blocks));
  const std::size_t size = simd::format_bytes(grad.format);
  constexpr std::uint64_t kRound = kBlocksOfLane * kTreeBlockElems;
  std::uint64_t first = 0;
  do {
    const std::uint64_t count = std::min(elems - first, kRound);
    const std::uint64_t rows = tree_blocks(count);
    const auto* const from = static_cast<const std::byte*>(grad.data) + first * size;
    auto* const to = packed == nullptr ? nullptr : static_cast<std::byte*>(packed) + first * size;
    kernels_->launch(KernelName::reduce, {rows, kReduceThreads}, on,
                     ReduceArguments{from, to, blocks, count, first, format_of(grad.format)});
    kernels_->launch(KernelName::reduce_blocks, {1, kReduceThreads}, on,
                     ReduceBlocksArguments{blocks, rows, scalars, first == 0});
    first += count;
  } while (first < elems);
}

// --- the rest ---

void CudaBackend::unpack(NativeStream stream, const DeviceUnpack& work) {
  const Lock lock(mutex_);
  require_sound("unpack");
  const Current current(context_);
  CUstream on = stream_of(stream, "unpack");
  check_elements(work.packed, work.elems);
  check_device_range(work.weights, work.count * sizeof(PackedWeight));
  // A block of threads for each weight: they are small.
  kernels("unpack").launch(
      KernelName::unpack, {work.count, kUnpackThreads}, on,
      UnpackArguments{work.packed.data, work.weights, work.count,
                      static_cast<std::uint32_t>(simd::format_bytes(work.packed.format))});
}

void CudaBackend::accumulate(NativeStream stream, const DeviceAccumulate& work) {
  const Lock lock(mutex_);
  require_sound("accumulate");
  const Current current(context_);
  CUstream on = stream_of(stream, "accumulate");
  check_elements(work.grad, work.elems);
  check_device_range(work.sum_fp32, work.elems * sizeof(float));
  kernels("accumulate")
      .launch(KernelName::accumulate, kernels("accumulate").shape_for(work.elems), on,
              AccumulateArguments{work.grad.data, static_cast<float*>(work.sum_fp32), work.elems,
                                  format_of(work.grad.format), work.first});
}

void CudaBackend::update(NativeStream stream, const DeviceUpdate& work) {
  const Lock lock(mutex_);
  require_sound("update");
  const Current current(context_);
  CUstream on = stream_of(stream, "update");
  const std::size_t bytes = work.elems * sizeof(float);
  // The second phase of LAMB has the gradient in its moments and reads it no more.
  if (work.lr_trust == nullptr) check_elements(work.grad, work.elems);
  check_elements({work.weight.data, work.weight.format}, work.elems);
  check_device_range(work.param, bytes);
  for (const void* optional : {work.state[0], work.state[1], work.ema}) {
    if (optional != nullptr) check_device_range(optional, bytes);
  }
  if (work.overflow_count != nullptr)
    check_device_range(work.overflow_count, sizeof(std::uint64_t));
  if (work.lr_trust != nullptr) check_device_range(work.lr_trust, sizeof(float));
  (void)kernels("update");
  std::visit([&](const auto& scalars) { launch_update(on, work, scalars, kernel_of(scalars)); },
             work.scalars);
}

template <class RuleScalars>
void CudaBackend::launch_update(CUstream stream, const DeviceUpdate& work,
                                const RuleScalars& scalars, KernelName kernel) {
  UpdateArguments<RuleScalars> arguments{};
  arguments.grad = work.grad.data;
  arguments.weight = work.weight.data;
  arguments.param = static_cast<float*>(work.param);
  arguments.state0 = static_cast<float*>(work.state[0]);
  arguments.state1 = static_cast<float*>(work.state[1]);
  arguments.ema = static_cast<float*>(work.ema);
  arguments.elems = work.elems;
  arguments.first_element = work.first_element;
  arguments.scalars = scalars;
  arguments.grad_format = format_of(work.grad.format);
  arguments.weight_format = format_of(work.weight.format);
  arguments.ema_one_minus_decay = work.options.ema_one_minus_decay;
  arguments.stochastic = work.options.rounding.on;
  arguments.rounding_key = work.options.rounding.key;
  arguments.overflow_count = static_cast<std::uint64_t*>(work.overflow_count);
  arguments.lr_trust = static_cast<const float*>(work.lr_trust);
  kernels_->launch(kernel, kernels_->shape_for(work.elems), stream, arguments);
}

void CudaBackend::lamb_moments(NativeStream stream, const DeviceLambMoments& work) {
  const Lock lock(mutex_);
  require_sound("lamb_moments");
  const Current current(context_);
  CUstream on = stream_of(stream, "lamb_moments");
  const std::uint64_t blocks = tree_blocks(work.elems);
  check_elements(work.grad, work.elems);
  for (const void* floats : {work.param, static_cast<const void*>(work.state[0]),
                             static_cast<const void*>(work.state[1])}) {
    check_device_range(floats, work.elems * sizeof(float));
  }
  check_device_range(work.norms, blocks * sizeof(simd::BlockNorms));
  kernels("lamb_moments")
      .launch(KernelName::lamb_moments, {blocks, kReduceThreads}, on,
              LambMomentsArguments{work.grad.data, static_cast<const float*>(work.param),
                                   static_cast<float*>(work.state[0]),
                                   static_cast<float*>(work.state[1]), work.elems, work.scalars,
                                   format_of(work.grad.format),
                                   static_cast<simd::BlockNorms*>(work.norms)});
}

void CudaBackend::lamb_trust(NativeStream stream, const DeviceLambTrust& work) {
  const Lock lock(mutex_);
  require_sound("lamb_trust");
  const Current current(context_);
  CUstream on = stream_of(stream, "lamb_trust");
  check_device_range(work.norms, work.blocks * sizeof(simd::BlockNorms));
  check_device_range(work.lr_trust, sizeof(float));
  kernels("lamb_trust")
      .launch(KernelName::lamb_trust, {1, 1}, on,
              LambTrustArguments{static_cast<const simd::BlockNorms*>(work.norms), work.blocks,
                                 work.lr, static_cast<float*>(work.lr_trust)});
}

void CudaBackend::digest(NativeStream stream, const DeviceDigest& work) {
  const Lock lock(mutex_);
  require_sound("digest");
  const Current current(context_);
  CUstream on = stream_of(stream, "digest");
  for (const void* floats : {work.param, work.state[0], work.state[1], work.ema}) {
    if (floats != nullptr) check_device_range(floats, work.elems * sizeof(float));
  }
  check_device_range(work.sum, sizeof(std::uint64_t));
  kernels("digest").launch(
      KernelName::digest, kernels("digest").shape_for(work.elems), on,
      DigestArguments{
          static_cast<const float*>(work.param), static_cast<const float*>(work.state[0]),
          static_cast<const float*>(work.state[1]), static_cast<const float*>(work.ema), work.elems,
          work.parameter, work.first_element, static_cast<std::uint64_t*>(work.sum)});
}

void CudaBackend::to_float(NativeStream stream, void* dst_fp32, simd::ConstElements src,
                           std::uint64_t elems) {
  const Lock lock(mutex_);
  require_sound("to_float");
  const Current current(context_);
  CUstream on = stream_of(stream, "to_float");
  check_elements(src, elems);
  check_device_range(dst_fp32, elems * sizeof(float));
  kernels("to_float")
      .launch(
          KernelName::to_float, kernels("to_float").shape_for(elems), on,
          ToFloatArguments{src.data, static_cast<float*>(dst_fp32), elems, format_of(src.format)});
}

}  // namespace outboard::device::cuda
