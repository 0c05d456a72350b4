// SPDX-License-Identifier: Apache-2.0
#include "cli/doctor.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/command_line.hpp"
#include "cli/report.hpp"
#include "cli/topo.hpp"
#include "outboard/version.hpp"

namespace outboard::cli {
namespace {

using inspect::Check;
using inspect::Health;

constexpr std::size_t kIndent = 24;  // of what is found, behind state and name

const char* mark_of(Health health) {
  switch (health) {
    case Health::ok:
      return "[ OK ]";
    case Health::warn:
      return "[WARN]";
    case Health::fail:
      return "[FAIL]";
  }
  return "[ ?? ]";
}

const char* name_of(Health health) {
  switch (health) {
    case Health::ok:
      return "ok";
    case Health::warn:
      return "warn";
    case Health::fail:
      return "fail";
  }
  return "unknown";
}

auto count(const std::vector<Check>& checks, Health health) {
  return std::ranges::count(checks, health, &Check::health);
}

}  // namespace

CLI::App* add_doctor(CLI::App& app, DoctorWords& words) {
  CLI::App* doctor = app.add_subcommand(
      "doctor", "what of this machine helps, costs or stops a trainer, and what to do");
  doctor->add_option("--root", words.question.root,
                     "another machine, in a folder of files as in /proc, /sys and /dev");
  doctor->add_option("--json", words.json, "write the checks to this file; -: to standard output");
  doctor->footer("The exit status is 0 if nothing fails, warnings or not.\n");
  return doctor;
}

int run(const DoctorWords& words) {
  require_writable(words.json);
  const std::vector<Check> checks =
      inspect::checks_of(inspect::inspect(words.question, inspect::system_probes()));
  if (words.json == "-") {
    std::cout << doctor_json(checks) << std::flush;
  } else {
    std::cout << doctor_text(checks) << std::flush;
    if (!words.json.empty()) write_file(words.json, doctor_json(checks));
  }
  return count(checks, Health::fail) == 0 ? 0 : 1;
}

std::string doctor_text(const std::vector<Check>& checks) {
  std::string text;
  for (const Check& check : checks) {
    text += print("%s %-15s  ", mark_of(check.health), check.name.c_str());
    text += wrapped(check.found, kIndent);
    if (check.remedy.empty()) continue;
    text += std::string(kIndent - 3, ' ') + "-> " + wrapped(check.remedy, kIndent);
  }
  return text + print("%td ok, %td to look at, %td failed\n", count(checks, Health::ok),
                      count(checks, Health::warn), count(checks, Health::fail));
}

std::string doctor_json(const std::vector<Check>& checks) {
  using nlohmann::ordered_json;
  ordered_json rows = ordered_json::array();
  for (const Check& check : checks) {
    ordered_json row = {{"name", check.name},
                        {"health", name_of(check.health)},
                        {"found", check.found},
                        {"remedy", nullptr}};
    if (!check.remedy.empty()) row["remedy"] = check.remedy;
    rows.push_back(std::move(row));
  }
  const ordered_json out = {{"version", kVersion},
                            {"checks", rows},
                            {"ok", count(checks, Health::ok)},
                            {"warned", count(checks, Health::warn)},
                            {"failed", count(checks, Health::fail)}};
  return out.dump(2) + "\n";
}

}  // namespace outboard::cli
