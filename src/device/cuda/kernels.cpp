// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/kernels.hpp"

#include <algorithm>

#include "device/cuda/check.hpp"
#include "outboard/error.hpp"

namespace outboard::device::cuda {
namespace {

constexpr std::array<const char*, kKernels> kSymbols = {
    "outboard_reduce",      "outboard_reduce_blocks", "outboard_unpack",
    "outboard_accumulate",  "outboard_update_adamw",  "outboard_update_adam",
    "outboard_update_sgd",  "outboard_update_lion",   "outboard_update_adagrad",
    "outboard_update_lamb", "outboard_lamb_moments",  "outboard_lamb_trust",
    "outboard_digest",      "outboard_to_float"};

constexpr std::uint32_t kThreads = 256;
// Of one thread at a time: 16 bytes of a 16-bit format.
constexpr std::uint64_t kElemsPerThread = 8;
// Blocks for each multiprocessor: enough to hide memory's latency, few enough to start at once.
constexpr std::uint64_t kBlocksPerProcessor = 8;

}  // namespace

const char* symbol_of(KernelName kernel) noexcept {
  return kSymbols[static_cast<std::size_t>(kernel)];
}

Kernels::Kernels(const Context& context) : context_(context) {
  const Current current(context);
  const DriverApi& api = context.api();
  const int processors = context.attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  most_blocks_ = static_cast<std::uint64_t>(std::max(1, processors)) * kBlocksPerProcessor;
  const CUresult loaded = api.module_load(&module_, kernel_image());
  if (is_no_code(loaded)) {
    throw Error(ErrorCode::unsupported, describe(api, loaded, "cuModuleLoadData", ""));
  }
  context.require(loaded, "cuModuleLoadData", {"(the engine's kernels)"});
  try {
    for (std::size_t i = 0; i < kKernels; ++i) {
      context.require(api.module_function(&functions_[i], module_, kSymbols[i]),
                      "cuModuleGetFunction", {kSymbols[i]});
    }
  } catch (...) {
    (void)api.module_unload(module_);
    throw;
  }
}

Kernels::~Kernels() {
  (void)context_.api().module_unload(module_);
}

LaunchShape Kernels::shape_for(std::uint64_t elems) const noexcept {
  constexpr std::uint64_t kPerBlock = kThreads * kElemsPerThread;
  return {std::min(elems / kPerBlock + (elems % kPerBlock != 0 ? 1 : 0), most_blocks_), kThreads};
}

void Kernels::launch_raw(KernelName kernel, const LaunchShape& shape, CUstream stream,
                         void* arguments) const {
  if (shape.blocks == 0) return;
  void* parameters[] = {arguments};
  CUfunction function = functions_[static_cast<std::size_t>(kernel)];
  const auto blocks = static_cast<unsigned>(shape.blocks);
  context_.require(context_.api().launch_kernel(function, blocks, 1, 1, shape.threads, 1, 1, 0,
                                                stream, parameters, nullptr),
                   "cuLaunchKernel", {symbol_of(kernel)});
}

}  // namespace outboard::device::cuda
