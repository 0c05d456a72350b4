// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_update.hpp"

#include <CLI/CLI.hpp>
#include <iostream>

#include "cli/report.hpp"
#include "outboard/error.hpp"
#include "update_bench/bench.hpp"

namespace outboard::cli {
namespace {

using update_bench::Workload;

const char* const kExamples =
    "Examples:\n"
    "  outboard bench update                                 1e8 parameters, f16, all cores\n"
    "  outboard bench update --params 1e6 1e7 1e8 --html update.html\n"
    "  outboard bench update --dtype bf16 --rule lion --threads 1 --json -\n"
    "  outboard bench update --tensors 10000                 against one tensor as large\n"
    "  outboard bench update --params 1e7 --subnormal        against normal values\n";

void add_what_options(CLI::App& app, BenchUpdateWords& words) {
  app.add_option("--params", words.params, "parameters, 1e5 to 1e9; several: one after the other")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--dtype", words.grad, "of the gradient: f16, bf16 or f32")
      ->check(CLI::IsMember({"f16", "bf16", "f32"}))
      ->capture_default_str();
  app.add_option("--weight-dtype", words.weight, "of the weight (default: as --dtype)")
      ->check(CLI::IsMember({"f16", "bf16", "f32"}));
  app.add_option("--rule", words.rule, "adamw, adam, sgd, lion, adagrad or lamb")
      ->check(CLI::IsMember({"adamw", "adam", "sgd", "lion", "adagrad", "lamb"}))
      ->capture_default_str();
  app.add_option("--rounding", words.rounding, "of the weight: nearest or stochastic")
      ->check(CLI::IsMember({"nearest", "stochastic"}))
      ->capture_default_str();
  app.add_option("--alias", words.alias,
                 "on: the weight goes where the gradient was (default where both have one size)")
      ->check(CLI::IsMember({"on", "off"}));
  app.add_option(
      "--tensors", words.tensors,
      "instead of --params: so many tensors of 10 to 10,000 elements, against one tensor "
      "of the same total");
  app.add_flag("--subnormal", words.subnormal,
               "also data full of subnormal values, against normal");
}

void add_how_options(CLI::App& app, BenchUpdateWords& words) {
  app.add_option("--threads", words.threads, "on each NUMA node (default: its allowed cores)");
  app.add_option("--repeat", words.repeats, "timed repeats, 7 or more")->capture_default_str();
  app.add_option("--json", words.json, "write the figures to this file; -: to standard output");
  app.add_option("--html", words.html, "write a page with a chart to this file");
}

std::string command_of(const BenchUpdateWords& words) {
  std::string text = "outboard bench update";
  const auto add = [&](const char* flag, const std::string& value) {
    if (!value.empty()) text.append(" ").append(flag).append(" ").append(value);
  };
  if (words.tensors != 0) {
    add("--tensors", std::to_string(words.tensors));
  } else {
    std::string sizes;
    for (const std::string& size : words.params) sizes += (sizes.empty() ? "" : ",") + size;
    add("--params", sizes);
  }
  add("--dtype", words.grad);
  add("--weight-dtype", words.weight);
  add("--rule", words.rule);
  add("--rounding", words.rounding);
  add("--alias", words.alias);
  if (words.subnormal) text += " --subnormal";
  if (words.threads != 0) add("--threads", std::to_string(words.threads));
  add("--repeat", std::to_string(words.repeats));
  return text;
}

Workload common_workload(const BenchUpdateWords& words) {
  Workload workload;
  workload.tensors = words.tensors;
  workload.rule = update_bench::rule_named(words.rule).value();
  workload.grad = update_bench::format_named(words.grad).value();
  workload.weight =
      words.weight.empty() ? workload.grad : update_bench::format_named(words.weight).value();
  workload.stochastic = words.rounding == "stochastic";
  const bool one_size = format_bytes(workload.grad) == format_bytes(workload.weight);
  workload.alias = words.alias.empty() ? one_size : words.alias == "on";
  workload.subnormal = words.subnormal;
  workload.repeats = words.repeats;
  return workload;
}

}  // namespace

CLI::App* add_bench_update(CLI::App& bench, BenchUpdateWords& words) {
  CLI::App* update = bench.add_subcommand("update", "the update kernel against the memory's rate");
  add_what_options(*update, words);
  add_how_options(*update, words);
  update->footer(kExamples);
  return update;
}

BenchUpdate settle(const BenchUpdateWords& words) {
  BenchUpdate request{.workloads = {},
                      .threads_per_node = words.threads,
                      .json = words.json,
                      .html = words.html,
                      .command = command_of(words)};
  const Workload common = common_workload(words);
  if (words.tensors != 0) {
    request.workloads.push_back(common);
  } else {
    for (const std::string& text : words.params) {
      request.workloads.push_back(common);
      request.workloads.back().params = parse_count(text);
    }
  }
  for (const Workload& workload : request.workloads) update_bench::validate(workload);
  return request;
}

int run(const BenchUpdate& request) {
  require_writable(request.json);
  require_writable(request.html);
  update_bench::Bench bench(request.threads_per_node);
  Report report{request.command, bench.info(), {}};
  const bool json_only = request.json == "-";
  if (!json_only) std::cout << text_head(report) << std::flush;
  bool all_right = true;
  for (const Workload& workload : request.workloads) {
    report.measurements.push_back(bench.measure(workload));
    const update_bench::Measurement& last = report.measurements.back();
    all_right = all_right && last.check.equal;
    if (!json_only) std::cout << text_rows(last) << std::flush;
  }
  if (!json_only) std::cout << text_foot(report) << std::flush;
  if (json_only) {
    std::cout << json_of(report) << std::flush;
  } else if (!request.json.empty()) {
    write_file(request.json, json_of(report));
  }
  if (!request.html.empty()) write_file(request.html, html_of(report));
  if (!all_right) std::cerr << "error: " << wrong_result(report) << '\n';
  return all_right ? 0 : 1;
}

}  // namespace outboard::cli
