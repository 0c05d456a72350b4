// SPDX-License-Identifier: Apache-2.0
/// Runs a program of the build and keeps what it wrote.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace text::test {

struct Finished {
  int exit_code = -1;  ///< 128 + signal if a signal ended it
  std::string out, err;
};

/// `environment` entries are "NAME=value", added to this process's own. With `interrupt_after` text
/// on its standard output the program gets SIGINT.
struct Command {
  std::vector<std::string> arguments;  ///< the program first
  std::vector<std::string> environment;
  std::string interrupt_after;
};
[[nodiscard]] Finished run(const Command& command);

}  // namespace text::test
