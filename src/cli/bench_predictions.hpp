// SPDX-License-Identifier: Apache-2.0
/// `outboard bench predictions`.
#pragma once

#include <string>
#include <vector>

#include "step_bench/predictions.hpp"

namespace CLI {
class App;
}

namespace outboard::cli {

struct BenchPredictions {
  bool in_virtual_time = false;
  std::string json;  ///< a file, "-" for standard output, "" for none
};

/// @return the subcommand.
CLI::App* add_bench_predictions(CLI::App& bench, BenchPredictions& request);
/// Measures and reports, case by case. @return the exit status, 0.
int run(const BenchPredictions& request);

[[nodiscard]] std::string predictions_json(const std::vector<step_bench::PredictedResult>& results,
                                           const BenchPredictions& request);
/// The case whose prediction is furthest off. `results`: not empty.
[[nodiscard]] const step_bench::PredictedResult& worst_of(
    const std::vector<step_bench::PredictedResult>& results);

}  // namespace outboard::cli
