// SPDX-License-Identifier: Apache-2.0
#include "conformance/backends.hpp"

namespace outboard::testing {

std::vector<BackendFlavour> cuda_flavours() {
  return {};
}

}  // namespace outboard::testing
