// SPDX-License-Identifier: Apache-2.0
/// NVIDIA's driver and cuBLASLt as a trainer uses them: found at run time, on the primary context
/// that the engine is on too. The lists below are all calls.
#pragma once

#include <cublasLt.h>
#include <cudaTypedefs.h>

#include <string>

namespace gpt::cuda {

#define GPT_DRIVER_CALLS(CALL)                                                              \
  CALL(init, cuInit, PFN_cuInit_v2000)                                                      \
  CALL(error_name, cuGetErrorName, PFN_cuGetErrorName_v6000)                                \
  CALL(device_get, cuDeviceGet, PFN_cuDeviceGet_v2000)                                      \
  CALL(context_retain, cuDevicePrimaryCtxRetain, PFN_cuDevicePrimaryCtxRetain_v7000)        \
  CALL(context_release, cuDevicePrimaryCtxRelease_v2, PFN_cuDevicePrimaryCtxRelease_v11000) \
  CALL(context_push, cuCtxPushCurrent_v2, PFN_cuCtxPushCurrent_v4000)                       \
  CALL(context_pop, cuCtxPopCurrent_v2, PFN_cuCtxPopCurrent_v4000)                          \
  CALL(memory_info, cuMemGetInfo_v2, PFN_cuMemGetInfo_v3020)                                \
  CALL(memory_allocate, cuMemAlloc_v2, PFN_cuMemAlloc_v3020)                                \
  CALL(memory_free, cuMemFree_v2, PFN_cuMemFree_v3020)                                      \
  CALL(stream_create, cuStreamCreate, PFN_cuStreamCreate_v2000)                             \
  CALL(stream_destroy, cuStreamDestroy_v2, PFN_cuStreamDestroy_v4000)                       \
  CALL(stream_synchronize, cuStreamSynchronize, PFN_cuStreamSynchronize_v2000)              \
  CALL(launch_host_function, cuLaunchHostFunc, PFN_cuLaunchHostFunc_v10000)                 \
  CALL(copy_to_device, cuMemcpyHtoDAsync_v2, PFN_cuMemcpyHtoDAsync_v3020)                   \
  CALL(copy_to_host, cuMemcpyDtoHAsync_v2, PFN_cuMemcpyDtoHAsync_v3020)                     \
  CALL(module_load, cuModuleLoadData, PFN_cuModuleLoadData_v2000)                           \
  CALL(module_unload, cuModuleUnload, PFN_cuModuleUnload_v2000)                             \
  CALL(module_function, cuModuleGetFunction, PFN_cuModuleGetFunction_v2000)                 \
  CALL(launch_kernel, cuLaunchKernel, PFN_cuLaunchKernel_v4000)

struct Driver {
#define GPT_DECLARE(name, symbol, type) type name = nullptr;
  GPT_DRIVER_CALLS(GPT_DECLARE)
#undef GPT_DECLARE

  /// @throws std::runtime_error naming the call, what it worked on, and the driver's name of the
  /// error.
  void require(CUresult result, const char* call, const std::string& what = "") const;
};

#define GPT_BLAS_CALLS(CALL)                                 \
  CALL(create, cublasLtCreate)                               \
  CALL(destroy, cublasLtDestroy)                             \
  CALL(product_create, cublasLtMatmulDescCreate)             \
  CALL(product_destroy, cublasLtMatmulDescDestroy)           \
  CALL(product_set, cublasLtMatmulDescSetAttribute)          \
  CALL(layout_create, cublasLtMatrixLayoutCreate)            \
  CALL(layout_destroy, cublasLtMatrixLayoutDestroy)          \
  CALL(preference_create, cublasLtMatmulPreferenceCreate)    \
  CALL(preference_destroy, cublasLtMatmulPreferenceDestroy)  \
  CALL(preference_set, cublasLtMatmulPreferenceSetAttribute) \
  CALL(choose, cublasLtMatmulAlgoGetHeuristic)               \
  CALL(multiply, cublasLtMatmul)

struct Blas {
#define GPT_DECLARE(name, symbol) decltype(&symbol) name = nullptr;
  GPT_BLAS_CALLS(GPT_DECLARE)
#undef GPT_DECLARE

  /// @throws std::runtime_error naming the call and the status.
  static void require(cublasStatus_t status, const char* call);
};

/// Loaded once. @throws std::runtime_error saying what is not found, and what to install.
[[nodiscard]] const Driver& driver();
[[nodiscard]] const Blas& blas();

}  // namespace gpt::cuda
