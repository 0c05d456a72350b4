// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <map>

#include "outboard/exit_status.hpp"

namespace outboard {
namespace {

TEST(ExitStatus, TellsTheMachineFromTheCommandAndFromAFailure) {
  const std::map<ErrorCode, int> expected = {
      {ErrorCode::invalid_argument, 2}, {ErrorCode::invalid_config, 2},
      {ErrorCode::protocol_error, 1},   {ErrorCode::unsupported, 3},
      {ErrorCode::out_of_memory, 3},    {ErrorCode::device_failure, 3},
      {ErrorCode::deadlock, 1},         {ErrorCode::poisoned, 1},
      {ErrorCode::numerics, 1},         {ErrorCode::timeout, 1},
      {ErrorCode::io_failure, 1},       {ErrorCode::no_space, 3},
      {ErrorCode::bad_checkpoint, 1},
  };
  EXPECT_EQ(expected.size(), static_cast<std::size_t>(ErrorCode::bad_checkpoint) + 1);
  for (const auto& [code, status] : expected) {
    EXPECT_EQ(exit_status(code), status) << static_cast<int>(code);
  }
}

}  // namespace
}  // namespace outboard
