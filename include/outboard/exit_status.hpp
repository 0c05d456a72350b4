// SPDX-License-Identifier: Apache-2.0
/// How a program that an error ends tells others what kind it was.
#pragma once

#include "outboard/error.hpp"

namespace outboard {

/// What a program that ends with this error returns: 2, what it was told to do cannot be done by
/// anybody; 3, this machine, device or build lacks something, and the same command may succeed on
/// another; 1, any other failure.
[[nodiscard]] constexpr int exit_status(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::invalid_argument:
    case ErrorCode::invalid_config:
      return 2;
    case ErrorCode::unsupported:
    case ErrorCode::out_of_memory:
    case ErrorCode::device_failure:
    case ErrorCode::no_space:
      return 3;
    case ErrorCode::protocol_error:
    case ErrorCode::deadlock:
    case ErrorCode::poisoned:
    case ErrorCode::numerics:
    case ErrorCode::timeout:
    case ErrorCode::io_failure:
    case ErrorCode::bad_checkpoint:
      return 1;
  }
  return 1;
}

}  // namespace outboard
