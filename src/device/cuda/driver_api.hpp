// SPDX-License-Identifier: Apache-2.0
/// The driver calls that the CUDA device makes, found at run time in libcuda.so.1, so that a
/// program starts where there is no driver. The list below is all of them.
#pragma once

#include <cudaTypedefs.h>

#include <cstdint>
#include <memory>
#include <string>

namespace outboard::device::cuda {

/// Name here, symbol in the library, type. Symbols and types name the version on purpose: headers
/// of a newer toolkit would otherwise ask a driver for calls that it does not have yet.
#define OUTBOARD_CUDA_DRIVER_CALLS(CALL)                                                       \
  CALL(init, cuInit, PFN_cuInit_v2000)                                                         \
  CALL(driver_version, cuDriverGetVersion, PFN_cuDriverGetVersion_v2020)                       \
  CALL(error_name, cuGetErrorName, PFN_cuGetErrorName_v6000)                                   \
  CALL(error_text, cuGetErrorString, PFN_cuGetErrorString_v6000)                               \
  CALL(device_count, cuDeviceGetCount, PFN_cuDeviceGetCount_v2000)                             \
  CALL(device_get, cuDeviceGet, PFN_cuDeviceGet_v2000)                                         \
  CALL(device_name, cuDeviceGetName, PFN_cuDeviceGetName_v2000)                                \
  CALL(device_attribute, cuDeviceGetAttribute, PFN_cuDeviceGetAttribute_v2000)                 \
  CALL(device_pci_address, cuDeviceGetPCIBusId, PFN_cuDeviceGetPCIBusId_v4010)                 \
  CALL(context_retain, cuDevicePrimaryCtxRetain, PFN_cuDevicePrimaryCtxRetain_v7000)           \
  CALL(context_release, cuDevicePrimaryCtxRelease_v2, PFN_cuDevicePrimaryCtxRelease_v11000)    \
  CALL(context_push, cuCtxPushCurrent_v2, PFN_cuCtxPushCurrent_v4000)                          \
  CALL(context_pop, cuCtxPopCurrent_v2, PFN_cuCtxPopCurrent_v4000)                             \
  CALL(memory_info, cuMemGetInfo_v2, PFN_cuMemGetInfo_v3020)                                   \
  CALL(memory_allocate, cuMemAlloc_v2, PFN_cuMemAlloc_v3020)                                   \
  CALL(memory_free, cuMemFree_v2, PFN_cuMemFree_v3020)                                         \
  CALL(pointer_attribute, cuPointerGetAttribute, PFN_cuPointerGetAttribute_v4000)              \
  CALL(host_allocate, cuMemHostAlloc, PFN_cuMemHostAlloc_v2020)                                \
  CALL(host_free, cuMemFreeHost, PFN_cuMemFreeHost_v2000)                                      \
  CALL(host_device_address, cuMemHostGetDevicePointer_v2, PFN_cuMemHostGetDevicePointer_v3020) \
  CALL(host_register, cuMemHostRegister_v2, PFN_cuMemHostRegister_v6050)                       \
  CALL(host_unregister, cuMemHostUnregister, PFN_cuMemHostUnregister_v4000)                    \
  CALL(stream_create, cuStreamCreate, PFN_cuStreamCreate_v2000)                                \
  CALL(stream_destroy, cuStreamDestroy_v2, PFN_cuStreamDestroy_v4000)                          \
  CALL(stream_context, cuStreamGetCtx, PFN_cuStreamGetCtx_v9020)                               \
  CALL(stream_query, cuStreamQuery, PFN_cuStreamQuery_v2000)                                   \
  CALL(stream_synchronize, cuStreamSynchronize, PFN_cuStreamSynchronize_v2000)                 \
  CALL(stream_wait_event, cuStreamWaitEvent, PFN_cuStreamWaitEvent_v3020)                      \
  CALL(stream_wait_value, cuStreamWaitValue32_v2, PFN_cuStreamWaitValue32_v11070)              \
  CALL(launch_host_function, cuLaunchHostFunc, PFN_cuLaunchHostFunc_v10000)                    \
  CALL(event_create, cuEventCreate, PFN_cuEventCreate_v2000)                                   \
  CALL(event_destroy, cuEventDestroy_v2, PFN_cuEventDestroy_v4000)                             \
  CALL(event_record, cuEventRecord, PFN_cuEventRecord_v2000)                                   \
  CALL(event_query, cuEventQuery, PFN_cuEventQuery_v2000)                                      \
  CALL(event_synchronize, cuEventSynchronize, PFN_cuEventSynchronize_v2000)                    \
  CALL(event_elapsed, cuEventElapsedTime, PFN_cuEventElapsedTime_v2000)                        \
  CALL(copy_to_device, cuMemcpyHtoDAsync_v2, PFN_cuMemcpyHtoDAsync_v3020)                      \
  CALL(copy_to_host, cuMemcpyDtoHAsync_v2, PFN_cuMemcpyDtoHAsync_v3020)                        \
  CALL(copy_on_device, cuMemcpyDtoDAsync_v2, PFN_cuMemcpyDtoDAsync_v3020)                      \
  CALL(set_bytes, cuMemsetD8Async, PFN_cuMemsetD8Async_v3020)                                  \
  CALL(set_halves, cuMemsetD16Async, PFN_cuMemsetD16Async_v3020)                               \
  CALL(set_words, cuMemsetD32Async, PFN_cuMemsetD32Async_v3020)                                \
  CALL(module_load, cuModuleLoadData, PFN_cuModuleLoadData_v2000)                              \
  CALL(module_unload, cuModuleUnload, PFN_cuModuleUnload_v2000)                                \
  CALL(module_function, cuModuleGetFunction, PFN_cuModuleGetFunction_v2000)                    \
  CALL(launch_kernel, cuLaunchKernel, PFN_cuLaunchKernel_v4000)

/// The library, loaded once and never unloaded: other libraries of the process use it too, and
/// their exit handlers call it.
struct DriverApi {
#define OUTBOARD_CUDA_MEMBER(name, symbol, type) type name = nullptr;
  OUTBOARD_CUDA_DRIVER_CALLS(OUTBOARD_CUDA_MEMBER)
#undef OUTBOARD_CUDA_MEMBER
};

/// The driver of this process, initialized. Thread-safe; up to seconds on the first call.
/// @throws Error{unsupported} saying which it is: no library, a driver too old (and which call it
/// lacks), no device, devices that this process may not use; and what to do.
[[nodiscard]] const DriverApi& driver();

/// The driver's numbers as what they are.
// NOLINTBEGIN(performance-no-int-to-ptr)
[[nodiscard]] inline void* pointer_of(CUdeviceptr address) noexcept {
  return reinterpret_cast<void*>(address);
}
[[nodiscard]] inline CUstream stream_handle(std::uint64_t value) noexcept {
  return reinterpret_cast<CUstream>(value);
}
// NOLINTEND(performance-no-int-to-ptr)

}  // namespace outboard::device::cuda
