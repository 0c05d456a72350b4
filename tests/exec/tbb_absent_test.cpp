// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "exec/executor.hpp"
#include "outboard/error.hpp"

namespace outboard::exec {
namespace {

TEST(AbsentTbb, SaysHowToGetIt) {
  try {
    (void)make_tbb_executor(topology::synthetic("pu:1"), {1});
    ADD_FAILURE() << "made an executor";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_NE(std::string(error.what()).find("OUTBOARD_PLAIN_THREADS"), std::string::npos);
  }
}

TEST(AbsentTbb, DefaultIsPlainThreads) {
  const auto executor = make_default_executor(topology::synthetic("pu:1"), {1});
  EXPECT_STREQ(executor->name(), "threads");
}

}  // namespace
}  // namespace outboard::exec
