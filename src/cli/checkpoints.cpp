// SPDX-License-Identifier: Apache-2.0
#include "cli/checkpoints.hpp"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <map>
#include <sstream>
#include <string_view>
#include <utility>

#include "cli/command_line.hpp"
#include "outboard/error.hpp"

namespace outboard::cli {
namespace {

std::string hex(std::uint64_t value) {
  char text[17] = {};
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(value));
  return text;
}

using ByName = std::map<std::string_view, const CheckpointParameter*>;

ByName by_name(const CheckpointInfo& info) {
  ByName parameters;
  for (const CheckpointParameter& one : info.parameters) parameters.emplace(one.name, &one);
  return parameters;
}

void compare_settings(const CheckpointInfo& a, const CheckpointInfo& b, std::ostream& out) {
  std::map<std::string, std::pair<std::string, std::string>> both;
  for (const auto& [name, value] : a.settings) both[name].first = value;
  for (const auto& [name, value] : b.settings) both[name].second = value;
  const auto shown = [](const std::string& value) { return value.empty() ? "unknown" : value; };
  for (const auto& [name, values] : both) {
    if (values.first == values.second) continue;
    out << name << ": " << shown(values.first) << " and " << shown(values.second) << "\n";
  }
}

void compare(const CheckpointParameter& a, const CheckpointParameter& b, std::ostream& out) {
  const std::string name = "parameter '" + printable(a.name) + "': ";
  const auto number = [&](const char* what, std::uint64_t x, std::uint64_t y) {
    if (x != y) out << name << what << " " << x << " and " << y << "\n";
  };
  number("elements", a.elems, b.elems);
  number("step count", a.step_count, b.step_count);
  if (a.dtype != b.dtype) {
    out << name << "dtype " << dtype_name(a.dtype) << " and " << dtype_name(b.dtype) << "\n";
  }
  for (const auto& [stream, checksum] : a.streams) {
    const auto other = b.streams.find(stream);
    if (other == b.streams.end()) {
      out << name << "only the first has " << printable(stream) << "\n";
    } else if (other->second != checksum) {
      out << name << printable(stream) << " differs\n";
    }
  }
  for (const auto& [stream, checksum] : b.streams) {
    if (!a.streams.contains(stream)) {
      out << name << "only the second has " << printable(stream) << "\n";
    }
  }
}

/// @return whether all of them can be read.
bool list(const std::string& folder) {
  if (std::filesystem::exists(std::filesystem::path(folder) / "manifest.json")) {
    std::cout << to_text(inspect_checkpoint(folder));
    return true;
  }
  const auto all = list_checkpoints(folder);
  bool sound = true;
  for (const std::string& one : all) {
    std::cout << one << "  ";
    try {
      const CheckpointInfo info = inspect_checkpoint(one);
      std::cout << "step " << info.steps << ", " << info.parameters.size() << " parameters, "
                << info.bytes << " bytes, digest " << hex(info.digest) << "\n";
    } catch (const Error& failure) {
      sound = false;
      const bool damaged = failure.code() == ErrorCode::bad_checkpoint;
      std::cout << (damaged ? "DAMAGED: " : "NOT READ: ") << printable(failure.what()) << "\n";
    }
  }
  if (all.empty()) std::cout << "no checkpoint in " << folder << "\n";
  return sound;
}

}  // namespace

const CLI::App* add_checkpoints(CLI::App& app, CheckpointWords& words) {
  CLI::App* all = app.add_subcommand("ckpt", "look into checkpoints");
  all->require_subcommand(1);
  const auto add = [&](const char* name, const char* what, bool& chosen) {
    CLI::App* one = all->add_subcommand(name, what);
    one->add_option("folder", words.folder,
                    "one checkpoint, or the folder that they are saved into")
        ->required();
    one->callback([&chosen] { chosen = true; });
    return one;
  };
  add("ls", "list a folder's checkpoints, or what one of them holds", words.list);
  add("verify", "read every byte and hold it against its checksum", words.verify);
  add("diff", "say what two checkpoints do not have alike", words.compare)
      ->add_option("other", words.other, "the second")
      ->required();
  add_interchange(*all, words.interchange);
  return all;
}

int run(const CheckpointWords& words) {
  if (words.interchange.exports || words.interchange.imports) return run(words.interchange);
  if (words.list) return list(words.folder) ? 0 : 1;
  if (words.verify) {
    // The folder once: a saver may publish another checkpoint meanwhile.
    const std::string folder = inspect_checkpoint(words.folder).folder;
    verify_checkpoint(folder);
    std::cout << folder << ": whole\n";
  }
  if (!words.compare) return 0;
  const std::string text =
      differences(inspect_checkpoint(words.folder), inspect_checkpoint(words.other));
  std::cout << (text.empty() ? "no difference\n" : text);
  return text.empty() ? 0 : 1;
}

std::string differences(const CheckpointInfo& a, const CheckpointInfo& b) {
  std::ostringstream out;
  const auto number = [&](const char* what, std::uint64_t x, std::uint64_t y) {
    if (x != y) out << what << ": " << x << " and " << y << "\n";
  };
  number("steps", a.steps, b.steps);
  number("steps applied", a.steps_applied, b.steps_applied);
  number("steps skipped", a.steps_skipped, b.steps_skipped);
  number("steps partial", a.steps_partial, b.steps_partial);
  compare_settings(a, b, out);
  if (a.loss_scale != b.loss_scale) {
    out << "loss scale: " << a.loss_scale << " and " << b.loss_scale << "\n";
  }
  for (std::size_t i = 0; i < std::max(a.groups.size(), b.groups.size()); ++i) {
    const std::string one = i < a.groups.size() ? a.groups[i] : "none";
    const std::string two = i < b.groups.size() ? b.groups[i] : "none";
    if (one != two) out << "group " << i << ": " << one << " and " << two << "\n";
  }
  const ByName of_a = by_name(a);
  const ByName of_b = by_name(b);
  for (const CheckpointParameter& parameter : a.parameters) {
    const auto other = of_b.find(parameter.name);
    if (other != of_b.end()) {
      compare(parameter, *other->second, out);
    } else {
      out << "parameter '" << printable(parameter.name) << "': only the first has it\n";
    }
  }
  for (const CheckpointParameter& parameter : b.parameters) {
    if (of_a.contains(parameter.name)) continue;
    out << "parameter '" << printable(parameter.name) << "': only the second has it\n";
  }
  if (a.entries != b.entries) out << "entries differ\n";
  return out.str();
}

std::string to_text(const CheckpointInfo& info) {
  std::ostringstream out;
  out << info.folder << "\nwritten by " << printable(info.written_by) << "\nstep " << info.steps
      << ": " << info.steps_applied << " applied, " << info.steps_skipped << " skipped\nloss scale "
      << info.loss_scale << "\ndigest " << hex(info.digest) << "\n"
      << info.bytes << " bytes of state\n";
  for (std::size_t i = 0; i < info.groups.size(); ++i) {
    out << "group " << i << ": " << info.groups[i] << "\n";
  }
  for (const CheckpointParameter& parameter : info.parameters) {
    out << printable(parameter.name) << "  " << dtype_name(parameter.dtype) << "  "
        << parameter.elems << " elements, t " << parameter.step_count << ", group "
        << parameter.group << ":";
    for (const auto& [stream, checksum] : parameter.streams) {
      out << " " << printable(stream) << " " << hex(checksum);
    }
    out << "\n";
  }
  for (const auto& [key, value] : info.entries) {
    out << "entry '" << printable(key) << "': " << value.size() << " bytes\n";
  }
  return out.str();
}

}  // namespace outboard::cli
