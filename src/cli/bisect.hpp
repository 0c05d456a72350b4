// SPDX-License-Identifier: Apache-2.0
/// `outboard bisect`: where two runs that were to be the same part, from their logs and
/// checkpoints.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <iosfwd>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "outboard/checkpoint.hpp"

namespace outboard::cli {

struct BisectWords {
  std::string a, b;                      ///< logs, or folders with a log and checkpoints
  std::vector<std::string> checkpoints;  ///< two folders; none: those of `a` and `b` if they are
  bool json = false;
};

/// Adds `bisect`. `words` must outlive the parse.
const CLI::App* add_bisect(CLI::App& app, BisectWords& words);
/// @return 0, or 1 if the runs part. @throws UsageError for a log that cannot be read, or two
/// without a common step; Error for a damaged checkpoint that is to be read.
int run(const BisectWords& words);

/// What a log says of each step, as text, by name: state digest, loss, norm and the like.
using StepValues = std::map<std::string, std::string>;
struct RunLog {
  std::map<std::uint64_t, StepValues> steps;  ///< of a step that was done twice the later
  std::vector<std::string>
      notes;  ///< steps that were done twice with other values; a cut last line
};
/// JSON lines as examples/gpt --log writes them. @throws UsageError naming file and line.
[[nodiscard]] RunLog read_log(std::istream& in, const std::string& file);

/// The first step of both logs of which something is told unlike.
struct Parting {
  std::uint64_t step = 0;
  std::map<std::string, std::pair<std::string, std::string>> values;  ///< what is unlike
};
struct LogComparison {
  std::uint64_t common_steps = 0, digests = 0;  ///< in both; with a digest in both
  std::optional<std::uint64_t> last_equal;      ///< last step before the parting of equal digests
  std::optional<Parting> parting;
};
[[nodiscard]] LogComparison compare_logs(const RunLog& a, const RunLog& b);

/// The first two checkpoints of one step whose digests differ.
struct PartedCheckpoints {
  std::uint64_t step = 0;
  std::string a, b;
  StateComparison state;
  std::string others;  ///< what else they have apart: differences()
};

struct BisectReport {
  LogComparison logs;
  std::optional<PartedCheckpoints> checkpoints;
  /// Last step of which both have checkpoints of equal digests, before those.
  std::optional<std::uint64_t> last_equal_checkpoint;
  std::vector<std::string> notes;

  [[nodiscard]] bool parted() const { return logs.parting.has_value() || checkpoints.has_value(); }
};
[[nodiscard]] std::string to_text(const BisectReport& report);
[[nodiscard]] std::string to_json(const BisectReport& report);

}  // namespace outboard::cli
