// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_step.hpp"

#include <CLI/CLI.hpp>
#include <iostream>

#include "cli/command_line.hpp"
#include "cli/plan_request.hpp"
#include "cli/report.hpp"
#include "cli/timeline.hpp"

namespace outboard::cli {
namespace {

using step_bench::Way;
using step_bench::Workload;

const char* const kExamples =
    "Examples:\n"
    "  outboard bench step                                  all ways, 64 even buckets\n"
    "  outboard bench step --pcie 4 --html step.html        a slow link, drawn\n"
    "  outboard bench step --way serial,exact --forward 2 --backward 4 --trace step.json\n"
    "  outboard bench step --real --layers 16 --params 4e6 --forward 32 --backward 64 --pcie 4 "
    "--hbm 20\n";

void add_model_options(CLI::App& app, BenchStepWords& words) {
  app.add_option("--layers", words.workload.layers, "of one parameter tensor each")
      ->capture_default_str();
  app.add_option("--params", words.params, "parameters of a layer")->capture_default_str();
  app.add_option("--forward", words.forward_ms, "ms that the forward of all layers takes")
      ->capture_default_str();
  app.add_option("--backward", words.backward_ms, "ms that the backward of all layers takes")
      ->capture_default_str();
  app.add_option("--bucket", words.bucket, "bytes of gradients, as 4MiB (default: a layer's)");
}

void add_machine_options(CLI::App& app, BenchStepWords& words) {
  app.add_option("--pcie", words.pcie, "link, GB/s each way")->capture_default_str();
  app.add_option("--pcie-up", words.pcie_up, "GB/s to the device (default: as --pcie)");
  app.add_option("--host", words.host, "Mparam/s that the host updates, in virtual time")
      ->capture_default_str();
  app.add_option("--nodes", words.workload.nodes, "NUMA nodes of the host, in virtual time")
      ->capture_default_str();
  app.add_option("--hbm", words.hbm, "device memory, GB/s")->capture_default_str();
}

void add_how_options(CLI::App& app, BenchStepWords& words) {
  app.add_option("--way", words.ways, "of " + step_bench::way_names() + " (default: all)")
      ->delimiter(',');
  app.add_flag("--real", words.real,
               "also in real time: threads, sleeps and this machine's own updates");
  app.add_option("--steps", words.workload.steps, "measured")->capture_default_str();
  app.add_option("--seed", words.workload.seed, "of orders that virtual time does not promise")
      ->capture_default_str();
  app.add_option("--json", words.json, "write the figures to this file; -: to standard output");
  app.add_option("--html", words.html, "write a page with timelines to this file");
  app.add_option("--trace", words.trace,
                 "write a trace for ui.perfetto.dev or chrome://tracing to this file");
}

std::string number(double value) {
  return print("%g", value);
}

std::string command_of(const BenchStepWords& words) {
  std::string text = "outboard bench step";
  const auto add = [&](const char* flag, const std::string& value) {
    if (!value.empty()) text.append(" ").append(flag).append(" ").append(value);
  };
  add("--layers", std::to_string(words.workload.layers));
  add("--params", words.params);
  add("--forward", number(words.forward_ms));
  add("--backward", number(words.backward_ms));
  add("--bucket", words.bucket);
  add("--pcie", number(words.pcie));
  if (words.pcie_up != 0.0) add("--pcie-up", number(words.pcie_up));
  add("--host", number(words.host));
  add("--nodes", std::to_string(words.workload.nodes));
  add("--hbm", number(words.hbm));
  std::string ways;
  for (const std::string& way : words.ways) ways += (ways.empty() ? "" : ",") + way;
  add("--way", ways);
  add("--steps", std::to_string(words.workload.steps));
  add("--seed", std::to_string(words.workload.seed));
  if (words.real) text += " --real";
  return text;
}

std::vector<const Way*> ways_of(const BenchStepWords& words) {
  std::vector<const Way*> ways;
  for (const std::string& name : words.ways) {
    const Way* way = step_bench::way_named(name);
    if (way == nullptr) {
      throw UsageError("no way to run a step is called \"" + name + "\"; there are " +
                       step_bench::way_names());
    }
    ways.push_back(way);
  }
  if (!ways.empty()) return ways;
  for (const Way& way : step_bench::all_ways()) ways.push_back(&way);
  return ways;
}

}  // namespace

CLI::App* add_bench_step(CLI::App& bench, BenchStepWords& words) {
  CLI::App* step = bench.add_subcommand(
      "step",
      "whole steps of a model of known durations on the software GPU, each way to run them "
      "against its bound");
  add_model_options(*step, words);
  add_machine_options(*step, words);
  add_how_options(*step, words);
  step->footer(kExamples);
  return step;
}

BenchStep settle(const BenchStepWords& words) {
  Workload workload = words.workload;
  workload.params = parse_count(words.params);
  workload.forward_us = words.forward_ms * 1e3;
  workload.backward_us = words.backward_ms * 1e3;
  if (!words.bucket.empty()) workload.bucket_bytes = parse_bytes(words.bucket);
  workload.link_down_bytes_per_s = words.pcie * 1e9;
  workload.link_up_bytes_per_s = (words.pcie_up != 0.0 ? words.pcie_up : words.pcie) * 1e9;
  workload.host_params_per_s = words.host * 1e6;
  workload.device_bytes_per_s = words.hbm * 1e9;
  step_bench::validate(workload);
  BenchStep request{.workload = workload,
                    .ways = ways_of(words),
                    .clocks = {step_bench::Clock::virtual_time},
                    .json = words.json,
                    .html = words.html,
                    .trace = words.trace,
                    .command = command_of(words)};
  if (words.real) request.clocks.push_back(step_bench::Clock::real);
  return request;
}

std::vector<Timeline> step_timelines(const step_bench::StepBench& bench) {
  std::vector<Timeline> timelines;
  for (const step_bench::WayResult& result : bench.results) {
    timelines.push_back(result.planned);
    timelines.push_back(result.measured);
  }
  return timelines;
}

int run(const BenchStep& request) {
  for (const std::string* path : {&request.json, &request.html, &request.trace}) {
    require_writable(*path);
  }
  const step_bench::StepBench bench =
      step_bench::measure(request.workload, request.ways, request.clocks);
  if (request.json == "-") {
    std::cout << step_json(bench, request.command) << std::flush;
  } else {
    std::cout << step_text(bench) << std::flush;
    if (!request.json.empty()) write_file(request.json, step_json(bench, request.command));
  }
  if (!request.html.empty()) write_file(request.html, step_html(bench, request.command));
  if (!request.trace.empty()) write_file(request.trace, trace_of(step_timelines(bench)));
  if (bench.same_bits()) return 0;
  std::cerr << "error: the ways leave different bits; see the digests\n";
  return 1;
}

}  // namespace outboard::cli
