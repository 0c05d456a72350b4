// SPDX-License-Identifier: Apache-2.0
#include "cli/topo.hpp"

#include <CLI/CLI.hpp>
#include <iostream>

#include "cli/command_line.hpp"

namespace outboard::cli {
namespace {

const char* const kExamples =
    "Examples:\n"
    "  outboard topo\n"
    "  outboard topo --synthetic \"pack:2 numa:4 core:8 pu:2\"\n"
    "  lstopo machine.xml && outboard topo --xml machine.xml --json -\n";

}  // namespace

CLI::App* add_topo(CLI::App& app, TopoWords& words) {
  CLI::App* topo = app.add_subcommand(
      "topo", "this machine or another: nodes, GPUs, limits, and who updates what");
  CLI::Option* synthetic = topo->add_option("--synthetic", words.question.synthetic,
                                            "a made-up machine, as \"numa:2 core:4 pu:1\"");
  CLI::Option* xml =
      topo->add_option("--xml", words.question.xml, "a machine in a file that lstopo wrote");
  topo->add_option("--root", words.question.root,
                   "a machine in a folder of files as in /proc, /sys and /dev")
      ->excludes(synthetic)
      ->excludes(xml);
  xml->excludes(synthetic);
  topo->add_option("--threads", words.question.threads_per_node,
                   "threads of each node (default: as the engine chooses)")
      ->check(CLI::Range(1, 4096));
  topo->add_option("--reserve", words.reserve_cores,
                   "cores left to the trainer (default: 1 beyond 2 cores)")
      ->check(CLI::Range(0, 4096));
  topo->add_option("--json", words.json, "write all of it to this file; -: to standard output");
  topo->footer(kExamples);
  return topo;
}

int run(const TopoWords& words) {
  require_writable(words.json);
  inspect::Question question = words.question;
  if (words.reserve_cores >= 0) {
    question.reserve_cores = static_cast<std::uint32_t>(words.reserve_cores);
  }
  const inspect::HostReport report = inspect::inspect(question, inspect::system_probes());
  if (words.json == "-") {
    std::cout << topo_json(report) << std::flush;
    return 0;
  }
  std::cout << topo_text(report) << '\n' << topo_picture(report) << std::flush;
  if (!words.json.empty()) write_file(words.json, topo_json(report));
  return 0;
}

}  // namespace outboard::cli
