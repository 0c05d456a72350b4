// SPDX-License-Identifier: Apache-2.0
#include <stdexcept>

#include "machine.hpp"

namespace gpt {

std::shared_ptr<Machine> make_cuda_machine(int /*ordinal*/) {
  throw std::runtime_error(
      "--device cuda: this build has none: no CUDA Toolkit with cuBLASLt was found, or "
      "OUTBOARD_CUDA is OFF; install the toolkit and configure with -DOUTBOARD_CUDA=ON, or take "
      "--device sim");
}

}  // namespace gpt
