// SPDX-License-Identifier: Apache-2.0
#include "cli/bisect.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/checkpoints.hpp"
#include "cli/command_line.hpp"
#include "outboard/error.hpp"

namespace outboard::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kDigest = "digest";
/// What decides on the state, or follows from it: nothing that is measured.
constexpr std::array<const char*, 7> kCompared = {
    kDigest, "loss_bits", "grad_norm_bits", "clip", "loss_scale", "outcome", "lr"};

/// Of one step's line. @return false if there is no step in it.
bool read_step(const json& line, std::uint64_t& step, StepValues& values) {
  if (!line.is_object()) return false;
  const auto number = line.find("step");
  if (number == line.end() || !number->is_number_unsigned()) return false;
  step = number->get<std::uint64_t>();
  for (const char* key : kCompared) {
    const auto found = line.find(key);
    if (found == line.end()) continue;
    values[key] = found->is_string() ? found->get<std::string>() : found->dump();
  }
  return true;
}

/// What both say of a step, and not alike.
Parting unlike(std::uint64_t step, const StepValues& a, const StepValues& b) {
  Parting parting{.step = step, .values = {}};
  for (const auto& [key, value] : a) {
    const auto other = b.find(key);
    if (other != b.end() && other->second != value) parting.values[key] = {value, other->second};
  }
  return parting;
}

struct Run {
  RunLog log;
  std::string checkpoints;  // "": none
};

RunLog open_log(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) throw UsageError("cannot read the log '" + file + "'");
  return read_log(in, file);
}

Run open_run(const std::string& path) {
  if (!fs::is_directory(path)) return {open_log(path), ""};
  std::vector<std::string> logs;
  for (const auto& entry : fs::directory_iterator(path)) {
    if (entry.path().extension() == ".jsonl") logs.push_back(entry.path().string());
  }
  if (logs.size() == 1) return {open_log(logs.front()), path};
  throw UsageError("'" + path + "' holds " + std::to_string(logs.size()) +
                   " files .jsonl; give the log itself, and --checkpoints");
}

/// The newest checkpoint of each step; notes which could not be read.
std::map<std::uint64_t, CheckpointInfo> by_step(const std::string& folder,
                                                std::vector<std::string>& notes) {
  std::map<std::uint64_t, CheckpointInfo> found;
  for (const std::string& one : list_checkpoints(folder)) {
    try {
      CheckpointInfo info = inspect_checkpoint(one);
      const std::uint64_t step = info.steps;
      found[step] = std::move(info);
    } catch (const Error& failure) {
      notes.push_back(std::string("passed over: ") + failure.what());
    }
  }
  return found;
}

void find_checkpoints(const std::string& a, const std::string& b, BisectReport& report) {
  const auto own = by_step(a, report.notes);
  const auto other = by_step(b, report.notes);
  for (const auto& [step, info] : own) {
    const auto same = other.find(step);
    if (same == other.end()) continue;
    if (info.digest == same->second.digest) {
      report.last_equal_checkpoint = step;
      continue;
    }
    report.checkpoints = {step, info.folder, same->second.folder,
                          compare_state(info.folder, same->second.folder),
                          differences(info, same->second)};
    return;
  }
}

}  // namespace

const CLI::App* add_bisect(CLI::App& app, BisectWords& words) {
  CLI::App* bisect = app.add_subcommand(
      "bisect", "find the step and the state in which two runs that were to be the same part");
  bisect
      ->add_option("run_a", words.a,
                   "a log in JSON lines, as examples/gpt --log --digest writes it, or a folder "
                   "with one and checkpoints")
      ->required();
  bisect->add_option("run_b", words.b, "the other run's")->required();
  bisect->add_option("--checkpoints", words.checkpoints, "the folders of both runs' checkpoints")
      ->expected(2);
  bisect->add_flag("--json", words.json, "print JSON");
  return bisect;
}

int run(const BisectWords& words) {
  Run a = open_run(words.a);
  Run b = open_run(words.b);
  if (!words.checkpoints.empty()) {
    a.checkpoints = words.checkpoints[0];
    b.checkpoints = words.checkpoints[1];
  }
  BisectReport report;
  report.logs = compare_logs(a.log, b.log);
  report.notes = a.log.notes;
  report.notes.insert(report.notes.end(), b.log.notes.begin(), b.log.notes.end());
  if (report.logs.common_steps == 0) {
    throw UsageError("'" + words.a + "' and '" + words.b +
                     "' have no step in common; give the logs of two runs of the same steps");
  }
  if (!a.checkpoints.empty() && !b.checkpoints.empty()) {
    find_checkpoints(a.checkpoints, b.checkpoints, report);
  }
  std::cout << (words.json ? to_json(report) : to_text(report));
  return report.parted() ? 1 : 0;
}

RunLog read_log(std::istream& in, const std::string& file) {
  RunLog log;
  std::string text;
  for (std::uint64_t number = 1; std::getline(in, text); ++number) {
    const std::string place = "'" + file + "', line " + std::to_string(number);
    if (text.empty()) continue;
    const json line = json::parse(text, nullptr, false);
    std::uint64_t step = 0;
    StepValues values;
    if (!read_step(line, step, values)) {
      if (!in.eof()) throw UsageError(place + ": is no JSON object with a step");
      log.notes.push_back(place + ": is cut off and passed over");
      continue;
    }
    const auto [known, first] = log.steps.try_emplace(step, values);
    if (first) continue;
    if (!unlike(step, known->second, values).values.empty()) {
      log.notes.push_back(place + ": step " + std::to_string(step) +
                          " was done before with another result; this one is taken");
    }
    for (const auto& [key, value] : values) known->second[key] = value;
  }
  return log;
}

LogComparison compare_logs(const RunLog& a, const RunLog& b) {
  LogComparison out;
  for (const auto& [step, values] : a.steps) {
    const auto other = b.steps.find(step);
    if (other == b.steps.end()) continue;
    out.common_steps += 1;
    const bool digests = values.contains(kDigest) && other->second.contains(kDigest);
    out.digests += digests ? 1 : 0;
    if (out.parting) continue;
    Parting parting = unlike(step, values, other->second);
    if (!parting.values.empty()) {
      out.parting = std::move(parting);
    } else if (digests) {
      out.last_equal = step;
    }
  }
  return out;
}

}  // namespace outboard::cli
