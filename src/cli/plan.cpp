// SPDX-License-Identifier: Apache-2.0
#include "cli/plan.hpp"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cmath>
#include <fstream>
#include <iostream>
#include <sstream>

#include "cli/command_line.hpp"
#include "cli/timeline.hpp"

namespace outboard::cli {
namespace {

// Usual values where nothing is given and no device is there to measure.
constexpr double kLinkBytesPerS = 25e9;     // PCIe 4.0, 16 lanes, pinned memory
constexpr double kFlopPerS = 100e12;        // what a trainer reaches, not what a data sheet says
constexpr double kDeviceBytesPerS = 900e9;  // of the device's own memory

constexpr std::array<DType, 3> kDtypes = {DType::f16, DType::bf16, DType::f32};

const char* const kExamples =
    "Examples:\n"
    "  outboard plan --params 7b --gpu-mem 24GiB --pcie 25 --dram 60 --tflops 150\n"
    "  outboard plan --model llama-2-13b --tokens 32768 --micro-batches 4 --accumulate host\n"
    "  outboard plan --config my-model/config.json --no-checkpointing --html plan.html\n";

void add_model_options(CLI::App& app, PlanWords& words) {
  app.add_option("--params", words.params, "parameters of a model of usual proportions: 7b, 350m");
  app.add_option("--model", words.model, "one of: " + preset_shape_names());
  app.add_option("--config", words.config, "a config.json as Hugging Face models have");
  app.add_option("--dtype", words.dtype, "of weights and gradients: f16, bf16 or f32")
      ->check(CLI::IsMember({"f16", "bf16", "f32"}))
      ->capture_default_str();
  app.add_option("--tokens", words.tokens, "tokens of a step, all micro-batches together")
      ->capture_default_str();
  app.add_option("--micro-batches", words.micro_batches, "of a step, whose gradients are added up")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--accumulate", words.accumulate,
                 "who adds them up: trainer, in its own gradients, or host, which is the engine")
      ->check(CLI::IsMember({"trainer", "host"}))
      ->capture_default_str();
  app.add_option("--context", words.context, "tokens that each one attends to")
      ->check(CLI::Range(1, 100'000'000))
      ->capture_default_str();
  app.add_flag("--no-checkpointing", words.no_checkpointing,
               "keep all activations, not each layer's input alone");
  app.add_flag("--all-gradients", words.all_gradients,
               "a gradient buffer for each parameter, not for two layers");
  app.add_flag("--chunked-loss", words.chunked_loss, "the logits are never all there at once");
  app.add_option("--activations", words.activations, "bytes, instead of the estimate");
}

void add_machine_options(CLI::App& app, PlanWords& words) {
  const auto positive = CLI::Range(1e-3, 1e9);
  app.add_option("--gpu-mem", words.gpu_memory, "device memory, as 24GiB")->capture_default_str();
  app.add_option("--host-mem", words.host_memory, "host memory (default: this machine's)");
  app.add_option("--nodes", words.nodes, "NUMA nodes of the host")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--pcie", words.pcie, "link, GB/s each way, both directions busy")
      ->check(positive);
  app.add_option("--dram", words.dram,
                 "host memory, GB/s of the update's traffic, all nodes (default: measured here)")
      ->check(positive);
  app.add_option("--tflops", words.tflops, "what the trainer reaches")->check(positive);
  app.add_option("--hbm", words.hbm, "device memory, GB/s")->check(positive);
  app.add_option("--disk", words.disk, "what a checkpoint is written to, GB/s")->check(positive);
  app.add_option("--snapshot-bytes", words.snapshot,
                 "host memory for state that a save beside training has not written yet")
      ->capture_default_str();
  app.add_option("--schedule", words.schedule, "exact, blocking, open or serial")
      ->capture_default_str();
  app.add_option("--fraction", words.fraction, "of the state that is on the device")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  app.add_option("--json", words.json, "write the figures to this file; -: to standard output");
  app.add_option("--html", words.html, "write a page with the step's timeline to this file");
  app.add_option("--trace", words.trace,
                 "write a trace for ui.perfetto.dev or chrome://tracing to this file");
}

ModelShape shape_of(const PlanWords& words) {
  const int given = static_cast<int>(!words.params.empty()) +
                    static_cast<int>(!words.model.empty()) +
                    static_cast<int>(!words.config.empty());
  if (given != 1) {
    throw UsageError("a plan needs one of --params, --model and --config, and " +
                     std::to_string(given) + " are given");
  }
  if (!words.params.empty()) return stand_in(parse_parameters(words.params));
  if (!words.model.empty()) return preset_shape(words.model);
  std::ifstream file(words.config, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) throw UsageError("cannot read " + words.config);
  return shape_from_json(text.str(), words.config);
}

std::uint64_t this_host_bytes() {
  const long pages = sysconf(_SC_PHYS_PAGES);
  const long bytes = sysconf(_SC_PAGESIZE);
  if (pages <= 0 || bytes <= 0) throw UsageError("cannot tell this machine's memory; --host-mem");
  return static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(bytes);
}

Rate given_or(double given, double factor, double assumed) {
  if (given > 0.0) return {given * factor, Known::given};
  return {assumed, Known::assumed};
}

}  // namespace

double update_bytes(DType dtype) {
  return 2.0 * static_cast<double>(kStateBytes + dtype_bytes(dtype));
}

std::uint64_t parse_bytes(const std::string& text) {
  struct Unit {
    const char* name;
    double bytes;
  };
  constexpr std::array<Unit, 10> kUnits = {{{"", 1.0},
                                            {"B", 1.0},
                                            {"KiB", 1024.0},
                                            {"MiB", 1048576.0},
                                            {"GiB", 1073741824.0},
                                            {"TiB", 1099511627776.0},
                                            {"KB", 1e3},
                                            {"MB", 1e6},
                                            {"GB", 1e9},
                                            {"TB", 1e12}}};
  std::istringstream in(text);
  double value = -1.0;
  std::string unit;
  in >> value;
  const bool number = !in.fail();
  in >> unit;
  for (const Unit& known : kUnits) {
    const double bytes = value * known.bytes;
    if (number && unit == known.name && bytes >= 1.0 && bytes <= 1e18) {
      return static_cast<std::uint64_t>(std::llround(bytes));
    }
  }
  throw UsageError("\"" + text + "\" is no amount of memory; give one such as 24GiB or 800MB");
}

CLI::App* add_plan(CLI::App& app, PlanWords& words) {
  CLI::App* plan = app.add_subcommand("plan", "what training a model will take");
  add_model_options(*plan, words);
  add_machine_options(*plan, words);
  plan->footer(kExamples);
  return plan;
}

PlanRequest settle(const PlanWords& words) {
  PlanRequest request;
  request.shape = shape_of(words);
  for (const DType dtype : kDtypes) {
    if (words.dtype == dtype_name(dtype)) request.dtype = dtype;
  }
  request.tokens = parse_count(words.tokens);
  request.micro_batches = words.micro_batches;
  if (words.accumulate == "host") request.accumulate = Accumulate::host;
  request.context = words.context;
  request.device_bytes = parse_bytes(words.gpu_memory);
  request.host_bytes =
      words.host_memory.empty() ? this_host_bytes() : parse_bytes(words.host_memory);
  request.nodes = words.nodes;
  request.link = given_or(words.pcie, 1e9, kLinkBytesPerS);
  request.compute = given_or(words.tflops, 1e12, kFlopPerS);
  request.device_memory = given_or(words.hbm, 1e9, kDeviceBytesPerS);
  request.disk = given_or(words.disk, 1e9, request.disk.value);
  request.snapshot_bytes = words.snapshot == "0" ? 0 : parse_bytes(words.snapshot);
  const double bytes = update_bytes(request.dtype);
  request.host_update =
      words.dram > 0.0
          ? Rate{words.dram * 1e9 / bytes, Known::given}
          : Rate{measure_host_update() * update_bytes(DType::f16) / bytes, Known::measured};
  request.checkpointing = !words.no_checkpointing;
  request.gradient_ring = !words.all_gradients;
  request.whole_logits = !words.chunked_loss;
  if (!words.activations.empty()) request.activation_bytes = parse_bytes(words.activations);
  request.schedule = schedule_named(words.schedule);
  request.device_fraction = words.fraction;
  request.json = words.json;
  request.html = words.html;
  request.trace = words.trace;
  if (request.tokens < request.micro_batches) {
    throw UsageError(std::to_string(request.tokens) + " tokens cannot be shared among " +
                     std::to_string(request.micro_batches) + " micro-batches");
  }
  return request;
}

int run(const PlanRequest& request) {
  for (const std::string* path : {&request.json, &request.html, &request.trace}) {
    require_writable(*path);
  }
  const PlanReport report = make_plan_report(request);
  if (request.json == "-") {
    std::cout << plan_json(report) << std::flush;
  } else {
    std::cout << plan_text(report) << std::flush;
    if (!request.json.empty()) write_file(request.json, plan_json(report));
  }
  if (!request.html.empty()) write_file(request.html, plan_html(report));
  if (!request.trace.empty()) {
    write_file(request.trace, trace_of(plan_timelines(request, report.free_bytes)));
  }
  return 0;
}

}  // namespace outboard::cli
