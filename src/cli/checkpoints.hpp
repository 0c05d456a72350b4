// SPDX-License-Identifier: Apache-2.0
/// `outboard ckpt`: what is in checkpoints, whether they are whole, and what two of them have
/// apart.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "cli/interchange.hpp"
#include "outboard/checkpoint.hpp"

namespace outboard::cli {

struct CheckpointWords {
  std::string folder, other;
  bool list = false, verify = false, compare = false;  ///< which of the three was asked for
  InterchangeWords interchange;                        ///< or export or import
};

/// Adds `ckpt ls`, `ckpt verify`, `ckpt diff`, `ckpt export` and `ckpt import`. `words` must
/// outlive the parse.
const CLI::App* add_checkpoints(CLI::App& app, CheckpointWords& words);
/// @return 0, or 1 if two checkpoints differ, or one of a listed folder is damaged, which its line
/// says. @throws Error for one that was named and is damaged or not there.
int run(const CheckpointWords& words);

/// One line for each thing that two checkpoints do not have alike; "" if there is none. State is
/// compared by its checksums.
[[nodiscard]] std::string differences(const CheckpointInfo& a, const CheckpointInfo& b);
/// Parameters, groups and the rest, as a text of several lines.
[[nodiscard]] std::string to_text(const CheckpointInfo& info);

}  // namespace outboard::cli
