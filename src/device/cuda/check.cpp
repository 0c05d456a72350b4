// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/check.hpp"

namespace outboard::device::cuda {

std::string describe(const DriverApi& api, CUresult result, const char* call,
                     const std::string& what) {
  const char* name = nullptr;
  const char* text = nullptr;
  if (api.error_name(result, &name) != CUDA_SUCCESS || name == nullptr) name = "unknown result";
  if (api.error_text(result, &text) != CUDA_SUCCESS || text == nullptr) text = "no description";
  std::string said = call;
  if (!what.empty()) said += " " + what;
  return said + ": " + text + " (" + name + ", " + std::to_string(static_cast<int>(result)) + ")";
}

bool is_no_code(CUresult result) noexcept {
  switch (result) {
    case CUDA_ERROR_INVALID_IMAGE:
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_INVALID_PTX:
    case CUDA_ERROR_JIT_COMPILER_NOT_FOUND:
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
    case CUDA_ERROR_JIT_COMPILATION_DISABLED:
      return true;
    default:
      return false;
  }
}

bool is_sticky(CUresult result) noexcept {
  if (is_no_code(result)) return false;
  switch (result) {
    case CUDA_SUCCESS:
    case CUDA_ERROR_NOT_READY:
    case CUDA_ERROR_INVALID_VALUE:
    case CUDA_ERROR_OUT_OF_MEMORY:
    case CUDA_ERROR_INVALID_HANDLE:
    case CUDA_ERROR_NOT_FOUND:
    case CUDA_ERROR_NOT_SUPPORTED:
    case CUDA_ERROR_NOT_PERMITTED:
    case CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED:
    case CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED:
      return false;
    default:
      return true;
  }
}

}  // namespace outboard::device::cuda
