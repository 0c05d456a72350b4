// SPDX-License-Identifier: Apache-2.0
// The CUDA device on the GPUs that the driver gives, if it gives any.
#include <gtest/gtest.h>

#include "conformance/backends.hpp"
#include "outboard/outboard.hpp"

namespace outboard::testing {
namespace {

/// "": there is one.
std::string why_no_gpu() {
  try {
    (void)Device::cuda(0);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

// Where there is none.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(BackendKernelTest);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(BackendTest);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(BackendUpdateTest);

TEST(GpuBackends, AreThere) {
  const std::string why = why_no_gpu();
  if (!why.empty()) GTEST_SKIP() << why;
  EXPECT_EQ(backend_flavours().size(), 1u);
}

}  // namespace

std::vector<BackendFlavour> backend_flavours() {
  if (!why_no_gpu().empty()) return {};
  const auto make = [first = std::weak_ptr<device::Backend>()]() mutable {
    const int ordinal = first.expired() ? 0 : 1;
    auto made = Device::cuda(ordinal).backend();
    if (ordinal == 0) first = made;
    return made;
  };
  return {{"gpu", make, true, true}};
}

}  // namespace outboard::testing
