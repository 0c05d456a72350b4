// SPDX-License-Identifier: Apache-2.0
/// What the larger examples' main() share: signals, errors, exit codes.
#pragma once

#include <atomic>
#include <functional>
#include <string>

#include "outboard/error.hpp"

namespace example {

/// Becomes true with the first SIGINT or SIGTERM after this call; a second one ends the program at
/// once.
[[nodiscard]] const std::atomic<bool>& stop_on_signals();

struct Program {
  const char* name;
  std::function<void()> run;
  /// What a device that is too small means for this program; asked after Error{out_of_memory}.
  std::function<std::string()> room;
};
/// @return the exit code: 0; after one line on standard error 2 for a UsageError,
/// outboard::exit_status() for an Error of the engine, and 1 for the rest.
[[nodiscard]] int run_program(const Program& program);

}  // namespace example
