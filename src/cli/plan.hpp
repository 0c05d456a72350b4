// SPDX-License-Identifier: Apache-2.0
/// `outboard plan`.
#pragma once

#include <string>

#include "cli/plan_request.hpp"

namespace CLI {
class App;
}

namespace outboard::cli {

/// Words of the command line, before it is known what they mean together.
struct PlanWords {
  std::string params, model, config;  ///< exactly one of them
  std::string dtype = "f16";
  std::string tokens = "8192";
  std::uint64_t micro_batches = 1, context = 2048;
  std::string accumulate = "trainer";
  std::string gpu_memory = "24GiB", host_memory, activations;
  std::uint32_t nodes = 1;
  double pcie = 0.0, dram = 0.0, tflops = 0.0, hbm = 0.0, disk = 0.0;
  std::string snapshot = "256MiB";
  std::string schedule = "exact";
  double fraction = 0.0;
  bool no_checkpointing = false, all_gradients = false, chunked_loss = false;
  std::string json, html, trace;
};

/// @return the subcommand, to ask whether it was parsed.
CLI::App* add_plan(CLI::App& app, PlanWords& words);
/// Measures what was not given and can be measured here. @throws UsageError.
[[nodiscard]] PlanRequest settle(const PlanWords& words);
/// Plans and reports. @return the exit status, 0.
int run(const PlanRequest& request);

}  // namespace outboard::cli
