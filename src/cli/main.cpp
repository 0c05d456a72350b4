// SPDX-License-Identifier: Apache-2.0
/// The program `outboard`. Exit status: 0; 1: a wrong result or a failure; 2: a command line that
/// cannot be carried out; 3: what this machine lacks (outboard/exit_status.hpp).
#include <CLI/CLI.hpp>
#include <csignal>
#include <exception>
#include <iostream>
#include <string>

#include "cli/bench_predictions.hpp"
#include "cli/bench_step.hpp"
#include "cli/bench_update.hpp"
#include "cli/bisect.hpp"
#include "cli/checkpoints.hpp"
#include "cli/doctor.hpp"
#include "cli/plan.hpp"
#include "cli/topo.hpp"
#include "outboard/error.hpp"
#include "outboard/exit_status.hpp"
#include "outboard/version.hpp"

namespace {

using outboard::Error;
using outboard::cli::UsageError;

int complain(const std::string& text, int status) {
  std::cerr << "error: " << text << '\n';
  return status;
}

int run(int argc, const char* const* argv) {
  CLI::App app{"Outboard, a CPU-offload optimizer engine", "outboard"};
  app.set_version_flag("--version", std::string("outboard ") + outboard::kVersion);
  app.require_subcommand(1);
  CLI::App* bench = app.add_subcommand("bench", "measure this machine");
  bench->require_subcommand(1);
  outboard::cli::BenchUpdateWords words;
  const CLI::App* update = outboard::cli::add_bench_update(*bench, words);
  outboard::cli::BenchStepWords step_words;
  outboard::cli::add_bench_step(*bench, step_words);
  outboard::cli::BenchPredictions predictions_request;
  const CLI::App* predictions = outboard::cli::add_bench_predictions(*bench, predictions_request);
  outboard::cli::PlanWords plan_words;
  const CLI::App* plan = outboard::cli::add_plan(app, plan_words);
  outboard::cli::TopoWords topo_words;
  const CLI::App* topo = outboard::cli::add_topo(app, topo_words);
  outboard::cli::DoctorWords doctor_words;
  const CLI::App* doctor = outboard::cli::add_doctor(app, doctor_words);
  outboard::cli::CheckpointWords checkpoint_words;
  const CLI::App* checkpoints = outboard::cli::add_checkpoints(app, checkpoint_words);
  outboard::cli::BisectWords bisect_words;
  const CLI::App* bisect = outboard::cli::add_bisect(app, bisect_words);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& wish) {  // help or version
    return app.exit(wish);
  } catch (const CLI::ParseError& error) {
    return complain(std::string(error.what()) + "; outboard --help lists what there is", 2);
  }
  if (topo->parsed()) return outboard::cli::run(topo_words);
  if (doctor->parsed()) return outboard::cli::run(doctor_words);
  if (bisect->parsed()) return outboard::cli::run(bisect_words);
  if (checkpoints->parsed()) return outboard::cli::run(checkpoint_words);
  if (plan->parsed()) return outboard::cli::run(outboard::cli::settle(plan_words));
  if (predictions->parsed()) return outboard::cli::run(predictions_request);
  if (update->parsed()) return outboard::cli::run(outboard::cli::settle(words));
  return outboard::cli::run(outboard::cli::settle(step_words));
}

}  // namespace

int main(int argc, char** argv) {
  // A write beyond `ulimit -f` then fails, and is told.
  (void)std::signal(SIGXFSZ, SIG_IGN);
  try {
    return run(argc, argv);
  } catch (const UsageError& error) {
    return complain(error.what(), 2);
  } catch (const Error& error) {
    return complain(error.what(), exit_status(error.code()));
  } catch (const std::exception& error) {
    return complain(error.what(), 1);
  }
}
