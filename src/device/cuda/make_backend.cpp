// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/make_backend.hpp"

#include "device/cuda/cuda_backend.hpp"

namespace outboard::device::cuda {

bool is_built() noexcept {
  return true;
}

std::shared_ptr<Backend> make_backend(int ordinal) {
  return std::make_shared<CudaBackend>(ordinal);
}

}  // namespace outboard::device::cuda
