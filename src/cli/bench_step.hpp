// SPDX-License-Identifier: Apache-2.0
/// `outboard bench step`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "outboard/timeline.hpp"
#include "step_bench/bench.hpp"

namespace CLI {
class App;
}

namespace outboard::cli {

/// Words of the command line, before it is known what they mean together.
struct BenchStepWords {
  std::vector<std::string> ways;  ///< none: all
  std::string params = "262144";
  std::string bucket;
  step_bench::Workload workload;
  double forward_ms = 6.0, backward_ms = 12.0;
  double pcie = 25.0, pcie_up = 0.0, host = 2000.0, hbm = 900.0;
  bool real = false;
  std::string json, html, trace;
};

struct BenchStep {
  step_bench::Workload workload;
  std::vector<const step_bench::Way*> ways;
  std::vector<step_bench::Clock> clocks;
  std::string json;     ///< a file, "-" for standard output, "" for none
  std::string html;     ///< a file, "" for none
  std::string trace;    ///< a file, "" for none
  std::string command;  ///< as it can be given again, without a path
};

/// @return the subcommand.
CLI::App* add_bench_step(CLI::App& bench, BenchStepWords& words);
/// @throws UsageError, or Error as validate() of step_bench does.
[[nodiscard]] BenchStep settle(const BenchStepWords& words);
/// Measures and reports. @return the exit status: 0, or 1 if the ways differ in their bits.
int run(const BenchStep& request);

[[nodiscard]] std::string step_text(const step_bench::StepBench& bench);
[[nodiscard]] std::string step_json(const step_bench::StepBench& bench, const std::string& command);
[[nodiscard]] std::string step_html(const step_bench::StepBench& bench, const std::string& command);
/// Of each result, predicted, then measured.
[[nodiscard]] std::vector<Timeline> step_timelines(const step_bench::StepBench& bench);

}  // namespace outboard::cli
