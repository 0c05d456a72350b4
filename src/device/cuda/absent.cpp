// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/make_backend.hpp"
#include "outboard/error.hpp"

namespace outboard::device::cuda {

bool is_built() noexcept {
  return false;
}

std::shared_ptr<Backend> make_backend(int /*ordinal*/) {
  throw Error(ErrorCode::unsupported,
              "CUDA: this build has none: no toolkit was found, or OUTBOARD_CUDA is OFF; install "
              "the CUDA Toolkit and configure with -DOUTBOARD_CUDA=ON, or use the software GPU");
}

}  // namespace outboard::device::cuda
