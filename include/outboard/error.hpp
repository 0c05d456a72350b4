// SPDX-License-Identifier: Apache-2.0
/// The one exception type of the library and its codes.
#pragma once

#include <stdexcept>
#include <string>

#include "outboard/export.hpp"

namespace outboard {

enum class ErrorCode {
  invalid_argument,  ///< a value that can never be right: a null pointer, a negative rate
  invalid_config,    ///< settings that contradict each other or the machine
  protocol_error,    ///< a call at the wrong time: a forgotten wait, a second gradient
  unsupported,       ///< a legal request that this build or release does not carry out
  out_of_memory,     ///< host or device memory is short; the text says by how much
  device_failure,    ///< a device call failed, at once or later
  deadlock,          ///< virtual time only: nothing is left to run and somebody still waits
  poisoned,          ///< an earlier failure left the state half new: load() or destroy the engine
  numerics,          ///< the loss scale gave up: gradients stay non-finite
  timeout,           ///< reserved for calls with a time limit
  io_failure,        ///< a file or folder cannot be read, written or found; the text has the path
  no_space,          ///< a file system, quota or limit is too small; the text says by how much
  bad_checkpoint,    ///< a checkpoint is damaged, or does not fit what it is loaded into
};

/// Thrown by every function of the library that fails. The text says what, which, how much, and
/// what to do about it.
class OUTBOARD_API Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& text) : std::runtime_error(text), code_(code) {}
  [[nodiscard]] ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

}  // namespace outboard
