// SPDX-License-Identifier: Apache-2.0
/// A system that gives the kernels fewer threads than asked for.
#include "workers.hpp"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "support/address_space_limit.hpp"

namespace gpt {
namespace {

TEST(WorkersShortage, IsAnErrorThatNamesTheFlag) {
  const outboard::testing::AddressSpaceLimit limit(std::size_t{512} << 20);
  try {
    const Workers workers(1000);  // of several MiB of stack each
    ADD_FAILURE() << "all " << workers.count() << " threads started";
  } catch (const std::runtime_error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find(" of 1000 could not start"), std::string::npos) << text;
    EXPECT_NE(text.find("lower --kernel-threads"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace gpt
