// SPDX-License-Identifier: Apache-2.0
/// `outboard ckpt export` and `outboard ckpt import`: weights between checkpoints and the files of
/// other programs.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace outboard::cli {

struct InterchangeWords {
  std::string from, to;
  std::string format = "safetensors";  ///< or "llmc"
  std::string dtype;                   ///< "": f32 to export, the file's own to import
  std::string rename;                  ///< a JSON file; "": names stay
  std::uint64_t max_shard_bytes = 5'000'000'000;
  std::uint32_t heads = 0;
  double static_loss_scale = 0.0;  ///< 0: a dynamic one
  bool exports = false, imports = false;
};

/// Adds the two to `ckpt`. `words` must outlive the parse.
void add_interchange(CLI::App& checkpoints, InterchangeWords& words);
/// @return 0. @throws Error, UsageError.
int run(const InterchangeWords& words);

/// What a file of names says: {"own": "other"}, or {"own": {"name": "other", "shape": [2, 3]}} with
/// either of the two.
struct Names {
  std::map<std::string, std::string> names;
  std::map<std::string, std::vector<std::uint64_t>> shapes;
};
/// @throws UsageError naming `file` and the place.
[[nodiscard]] Names parse_names(const std::string& text, const std::string& file);

}  // namespace outboard::cli
