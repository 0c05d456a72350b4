// SPDX-License-Identifier: Apache-2.0
/// From a driver call's result to an Error that says which call failed, on what, and where.
#pragma once

#include <string>

#include "device/cuda/driver_api.hpp"

namespace outboard::device::cuda {

/// "cuMemcpyDtoHAsync_v2 of 4096 bytes: out of memory (CUDA_ERROR_OUT_OF_MEMORY, 2)".
[[nodiscard]] std::string describe(const DriverApi& api, CUresult result, const char* call,
                                   const std::string& what);

/// Whether a module was refused because this driver has no code of it for the device, nor makes
/// any.
[[nodiscard]] bool is_no_code(CUresult result) noexcept;

/// Whether the context is gone for good: every later call of it fails too.
[[nodiscard]] bool is_sticky(CUresult result) noexcept;

}  // namespace outboard::device::cuda
