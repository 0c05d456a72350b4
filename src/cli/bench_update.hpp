// SPDX-License-Identifier: Apache-2.0
/// `outboard bench update`.
#pragma once

#include "cli/command_line.hpp"

namespace CLI {
class App;
}

namespace outboard::cli {

/// Words of the command line, before it is known what they mean together.
struct BenchUpdateWords {
  std::vector<std::string> params = {"1e8"};
  std::string grad = "f16", weight, rule = "adamw", rounding = "nearest", alias;
  std::uint32_t tensors = 0;
  std::uint32_t repeats = update_bench::Workload{}.repeats;
  bool subnormal = false;
  std::uint32_t threads = 0;
  std::string json, html;
};

/// @return the subcommand, to ask whether it was parsed.
CLI::App* add_bench_update(CLI::App& bench, BenchUpdateWords& words);
/// @throws UsageError, or Error as validate() of update_bench does.
[[nodiscard]] BenchUpdate settle(const BenchUpdateWords& words);
/// Measures and reports. @return the exit status: 0, or 1 if a result was not what it should be.
int run(const BenchUpdate& request);

}  // namespace outboard::cli
