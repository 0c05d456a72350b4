// SPDX-License-Identifier: Apache-2.0
/// The command line.
#pragma once

#include <cstddef>
#include <optional>

#include "../common/run_options.hpp"

namespace text {

struct Options : example::RunOptions {
  Options();

  std::size_t batch = 256;
  std::size_t width = 1024;
  std::size_t embed = 32;
  std::size_t eval_bytes = 16384;
  std::size_t sample_bytes = 240;
};

/// @return nullopt if help was asked for and printed. @throws example::UsageError.
[[nodiscard]] std::optional<Options> parse_options(int argc, const char* const* argv);

}  // namespace text
