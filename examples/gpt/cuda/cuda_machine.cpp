// SPDX-License-Identifier: Apache-2.0
#include "cuda_machine.hpp"

#include <algorithm>
#include <chrono>

#include "cuda_ops.hpp"

namespace gpt::cuda {

/// The fat binary, which the build embeds.
[[nodiscard]] const void* kernel_image() noexcept;

namespace {

constexpr std::array<const char*, kKernels> kSymbols = {"gpt_embed",
                                                        "gpt_embed_backward_table",
                                                        "gpt_embed_backward_places",
                                                        "gpt_normal",
                                                        "gpt_normal_backward",
                                                        "gpt_columns",
                                                        "gpt_gelu",
                                                        "gpt_attention",
                                                        "gpt_attention_backward_query",
                                                        "gpt_attention_backward_key",
                                                        "gpt_loss_row",
                                                        "gpt_sum",
                                                        "gpt_narrow"};

CUstream native(outboard::NativeStream stream) {
  return reinterpret_cast<CUstream>(stream.value);
}
CUdeviceptr number_of(const void* address) {
  return reinterpret_cast<CUdeviceptr>(address);
}

}  // namespace

CudaMachine::Current::Current(const CudaMachine& machine) : api_(machine.api_) {
  api_.require(api_.context_push(machine.context_), "cuCtxPushCurrent_v2");
}
CudaMachine::Current::~Current() {
  CUcontext popped = nullptr;
  (void)api_.context_pop(&popped);
}

CudaMachine::CudaMachine(int ordinal) : device_(outboard::Device::cuda(ordinal)), api_(driver()) {
  api_.require(api_.init(0), "cuInit");
  api_.require(api_.device_get(&number_, ordinal), "cuDeviceGet");
  api_.require(api_.context_retain(&context_, number_), "cuDevicePrimaryCtxRetain");
  try {
    const Current current(*this);
    api_.require(api_.module_load(&module_, kernel_image()), "cuModuleLoadData",
                 "(the model's kernels)");
    for (std::size_t i = 0; i < kKernels; ++i) {
      api_.require(api_.module_function(&functions_[i], module_, kSymbols[i]),
                   "cuModuleGetFunction", kSymbols[i]);
    }
  } catch (...) {
    (void)api_.context_release(number_);
    throw;
  }
}

CudaMachine::~CudaMachine() {
  try {
    const Current current(*this);
    for (CUstream stream : streams_) {
      (void)api_.stream_synchronize(stream);
      (void)api_.stream_destroy(stream);
    }
    (void)api_.module_unload(module_);
  } catch (const std::exception&) {
    // No context to be made current: the driver has gone, and all of it with it.
  }
  (void)api_.context_release(number_);
}

std::unique_ptr<Ops> CudaMachine::make_ops(const GptShape& shape, std::size_t /*threads*/) {
  return std::make_unique<CudaOps>(*this, shape);
}

void* CudaMachine::allocate(std::size_t bytes) {
  const Current current(*this);
  CUdeviceptr address = 0;
  const CUresult result = api_.memory_allocate(&address, std::max<std::size_t>(bytes, 1));
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    const outboard::sim::MemoryUse use = memory();
    throw outboard::Error(outboard::ErrorCode::out_of_memory,
                          "device memory: " + std::to_string(bytes) + " bytes asked, " +
                              std::to_string(use.used_bytes) + " of " +
                              std::to_string(use.limit_bytes) + " used");
  }
  api_.require(result, "cuMemAlloc_v2", "of " + std::to_string(bytes) + " bytes");
  return reinterpret_cast<void*>(address);
}

void CudaMachine::release(void* address) noexcept {
  try {
    const Current current(*this);
    (void)api_.memory_free(number_of(address));
  } catch (const std::exception&) {
    // The context has gone, and the memory with it.
  }
}

outboard::sim::MemoryUse CudaMachine::memory() const {
  const Current current(*this);
  std::size_t free = 0;
  std::size_t total = 0;
  api_.require(api_.memory_info(&free, &total), "cuMemGetInfo_v2");
  peak_bytes_ = std::max(peak_bytes_, total - free);
  return {.limit_bytes = total, .used_bytes = total - free, .peak_bytes = peak_bytes_};
}

outboard::sim::Duration CudaMachine::now() const {
  return std::chrono::steady_clock::now().time_since_epoch();
}

/// Non-blocking: the legacy stream is nobody's here, and the engine's streams do not wait for it.
outboard::NativeStream CudaMachine::create_stream(const char* name) {
  const Current current(*this);
  CUstream stream = nullptr;
  api_.require(api_.stream_create(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate", name);
  streams_.push_back(stream);
  if (current_ == nullptr) current_ = stream;
  return {reinterpret_cast<std::uintptr_t>(stream)};
}

void CudaMachine::synchronize(outboard::NativeStream stream) {
  const Current current(*this);
  api_.require(api_.stream_synchronize(native(stream)), "cuStreamSynchronize");
}

void CudaMachine::copy_to_device(void* to, std::span<const std::byte> from,
                                 outboard::NativeStream stream) {
  const Current current(*this);
  api_.require(api_.copy_to_device(number_of(to), from.data(), from.size(), native(stream)),
               "cuMemcpyHtoDAsync_v2", "of " + std::to_string(from.size()) + " bytes");
}

void CudaMachine::copy_to_host(std::span<std::byte> to, const void* from,
                               outboard::NativeStream stream) {
  const Current current(*this);
  api_.require(api_.copy_to_host(to.data(), number_of(from), to.size(), native(stream)),
               "cuMemcpyDtoHAsync_v2", "of " + std::to_string(to.size()) + " bytes");
}

void CudaMachine::launch(outboard::NativeStream stream, outboard::sim::Duration /*charged*/,
                         OperatorCall call, const char* /*name*/) {
  const Current current(*this);
  current_ = native(stream);
  View view;
  call(view);
}

void CudaMachine::run_on_host(outboard::NativeStream stream, std::function<void()> function) {
  HostCall* call = nullptr;
  {
    const std::scoped_lock lock(mutex_);
    if (free_ == nullptr) free_ = &calls_.emplace_back();
    call = free_;
    free_ = call->next;
  }
  call->machine = this;
  call->function = std::move(function);
  const Current current(*this);
  api_.require(api_.launch_host_function(native(stream), &CudaMachine::call_on_host, call),
               "cuLaunchHostFunc");
}

void CudaMachine::call_on_host(void* pointer) noexcept {
  auto* const call = static_cast<HostCall*>(pointer);
  call->function();
  const std::scoped_lock lock(call->machine->mutex_);
  call->next = call->machine->free_;
  call->machine->free_ = call;
}

void CudaMachine::run_raw(KernelName kernel, const Grid& grid, void* arguments) {
  if (grid.blocks == 0) return;
  void* parameters[] = {arguments};
  const auto index = static_cast<std::size_t>(kernel);
  api_.require(
      api_.launch_kernel(functions_[index], static_cast<unsigned>(grid.blocks), 1, 1, grid.threads,
                         1, 1, static_cast<unsigned>(grid.shared_floats * sizeof(float)), current_,
                         parameters, nullptr),
      "cuLaunchKernel", kSymbols[index]);
}

}  // namespace gpt::cuda

namespace gpt {

std::shared_ptr<Machine> make_cuda_machine(int ordinal) {
  return std::make_shared<cuda::CudaMachine>(ordinal);
}

}  // namespace gpt
