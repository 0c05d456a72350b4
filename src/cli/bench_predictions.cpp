// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_predictions.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/command_line.hpp"
#include "cli/report.hpp"
#include "outboard/version.hpp"

namespace outboard::cli {
namespace {

using nlohmann::ordered_json;
using step_bench::Clock;
using step_bench::PredictedCase;
using step_bench::PredictedResult;

double off(const PredictedResult& result) {
  return std::abs(result.ratio() - 1.0);
}

std::string row(const PredictedResult& result) {
  const auto [least, most] = std::ranges::minmax(result.steps_us);
  return print("%-10s %-10s %6u %12.3f %12.3f %10.3f %10.3f %10.4f\n", result.of.shape.c_str(),
               result.of.way->name, result.of.workload.micro_batches, result.predicted_us * 1e-3,
               result.median_us() * 1e-3, least * 1e-3, most * 1e-3, result.ratio());
}

ordered_json case_json(const PredictedResult& result) {
  const step_bench::Workload& w = result.of.workload;
  const PlanningMachine& m = result.machine;
  return {{"shape", result.of.shape},
          {"way", result.of.way->name},
          {"micro_batches_added_up", w.micro_batches},
          {"layers", w.layers},
          {"params_per_layer", w.params},
          {"forward_us", w.forward_us},
          {"backward_us", w.backward_us},
          {"measured_before",
           {{"link_down_bytes_per_s", m.link_down_bytes_per_s},
            {"link_up_bytes_per_s", m.link_up_bytes_per_s},
            {"node_params_per_s", m.node_elems_per_s},
            {"node_sums_per_s", m.node_sums_per_s},
            {"device_params_per_s", m.device_elems_per_s},
            {"device_norms_per_s", m.norm_elems_per_s},
            {"device_sums_per_s", m.device_sums_per_s}}},
          {"predicted_us", result.predicted_us},
          {"median_us", result.median_us()},
          {"steps_us", result.steps_us},
          {"ratio", result.ratio()}};
}

}  // namespace

CLI::App* add_bench_predictions(CLI::App& bench, BenchPredictions& request) {
  CLI::App* predictions = bench.add_subcommand(
      "predictions",
      "steps of every schedule, placement and shape in real time, each foretold by the planner "
      "from speeds that the steps before have shown");
  predictions->add_flag("--virtual", request.in_virtual_time,
                        "in virtual time, from the speeds that the software GPU is given");
  predictions->add_option("--json", request.json,
                          "write the figures to this file; -: to standard output");
  return predictions;
}

const PredictedResult& worst_of(const std::vector<PredictedResult>& results) {
  return *std::ranges::max_element(results, {}, off);
}

std::string predictions_json(const std::vector<PredictedResult>& results,
                             const BenchPredictions& request) {
  ordered_json cases = ordered_json::array();
  for (const PredictedResult& result : results) cases.push_back(case_json(result));
  const PredictedResult& worst = worst_of(results);
  const std::string command =
      std::string("outboard bench predictions") + (request.in_virtual_time ? " --virtual" : "");
  const ordered_json out = {{"version", kVersion},
                            {"command", command},
                            {"clock", request.in_virtual_time ? "virtual" : "real"},
                            {"cases", std::move(cases)},
                            {"worst_ratio", worst.ratio()}};
  return out.dump(2) + "\n";
}

int run(const BenchPredictions& request) {
  require_writable(request.json);
  const bool to_screen = request.json == "-";
  const Clock clock = request.in_virtual_time ? Clock::virtual_time : Clock::real;
  if (!to_screen) {
    std::cout << print("%-10s %-10s %6s %12s %12s %10s %10s %10s\n", "shape", "way", "added",
                       "predicted ms", "median ms", "min ms", "max ms", "ratio")
              << std::flush;
  }
  std::vector<PredictedResult> results;
  for (const PredictedCase& c : step_bench::predicted_cases()) {
    results.push_back(step_bench::predict_and_measure(c, clock));
    if (!to_screen) std::cout << row(results.back()) << std::flush;
  }
  if (to_screen) {
    std::cout << predictions_json(results, request) << std::flush;
    return 0;
  }
  const PredictedResult& worst = worst_of(results);
  std::cout << print("%zu cases; the worst, %s %s: %.4f of the measured step\n", results.size(),
                     worst.of.shape.c_str(), worst.of.way->name, worst.ratio());
  if (!request.json.empty()) write_file(request.json, predictions_json(results, request));
  return 0;
}

}  // namespace outboard::cli
