// SPDX-License-Identifier: Apache-2.0
/// A system that gives fewer threads than asked for.
#include <gtest/gtest.h>

#include "exec/executor.hpp"
#include "support/address_space_limit.hpp"
#include "support/expect_error.hpp"

namespace outboard::exec {
namespace {

constexpr std::uint32_t kThreads = 1000;  // of several MiB of stack each

TEST(ThreadShortage, IsAnErrorAndLeavesRoomForFewer) {
  const topology::Machine machine = topology::synthetic("numa:2 core:1 pu:1");
  {
    const testing::AddressSpaceLimit limit(std::size_t{512} << 20);
    for (const auto make : {make_default_executor, make_thread_executor}) {
      testing::expect_error(ErrorCode::out_of_memory, {"could not start", "use fewer threads"},
                            [&] {
                              (void)make(machine, {kThreads, kThreads});
                            });
    }
  }
  EXPECT_EQ(make_default_executor(machine, {2, 2})->threads(1), 2u);
}

}  // namespace
}  // namespace outboard::exec
