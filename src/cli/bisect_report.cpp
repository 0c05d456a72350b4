// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/bisect.hpp"
#include "cli/command_line.hpp"

namespace outboard::cli {
namespace {

using nlohmann::ordered_json;

std::string bits(float value) {
  char text[9] = {};
  std::snprintf(text, sizeof(text), "%08x", std::bit_cast<std::uint32_t>(value));
  return text;
}

/// The last step after which the state is known to be the same.
std::optional<std::uint64_t> last_equal(const BisectReport& report) {
  return std::max(report.logs.last_equal, report.last_equal_checkpoint);
}

void print_checkpoints(const PartedCheckpoints& parted, std::ostream& out) {
  constexpr std::size_t kShown = 12;
  out << "checkpoints of step " << parted.step << ": " << parted.a << " and " << parted.b << "\n";
  if (parted.state.first) {
    const auto& first = *parted.state.first;
    out << "  first difference: parameter '" << printable(first.parameter) << "', stream "
        << printable(first.stream) << ", element " << first.element << ": ";
    out.precision(9);
    out << first.a << " and " << first.b << " (bits " << bits(first.a) << " and " << bits(first.b)
        << ")\n  " << parted.state.elements << " elements of " << parted.state.tensors.size()
        << " tensors differ:";
    for (std::size_t i = 0; i < std::min(kShown, parted.state.tensors.size()); ++i) {
      out << " " << printable(parted.state.tensors[i]);
    }
    out << (parted.state.tensors.size() > kShown ? " ...\n" : "\n");
  }
  for (const std::string& name : parted.state.unmatched) {
    out << "  not in both, or of another size: " << printable(name) << "\n";
  }
  if (!parted.state.first) out << parted.others;
}

void print_logs(const LogComparison& logs, std::ostream& out) {
  if (!logs.parting) {
    out << "the logs tell " << logs.common_steps << " steps alike, " << logs.digests
        << " of them with a state digest\n";
    return;
  }
  out << "the logs part at step " << logs.parting->step << ":\n";
  for (const auto& [name, values] : logs.parting->values) {
    out << "  " << name << " " << printable(values.first) << " and " << printable(values.second)
        << "\n";
  }
}

ordered_json checkpoints_json(const PartedCheckpoints& parted) {
  ordered_json out = {{"step", parted.step}, {"a", parted.a}, {"b", parted.b}};
  out["first"] = nullptr;
  if (parted.state.first) {
    const auto& first = *parted.state.first;
    out["first"] = {{"parameter", first.parameter},
                    {"stream", first.stream},
                    {"element", first.element},
                    {"a", first.a},
                    {"b", first.b},
                    {"a_bits", bits(first.a)},
                    {"b_bits", bits(first.b)}};
  }
  out["elements"] = parted.state.elements;
  out["tensors"] = parted.state.tensors;
  out["unmatched"] = parted.state.unmatched;
  out["others"] = parted.others;
  return out;
}

template <class Value>
ordered_json or_null(const std::optional<Value>& value) {
  return value ? ordered_json(*value) : ordered_json(nullptr);
}

}  // namespace

std::string to_text(const BisectReport& report) {
  std::ostringstream out;
  print_logs(report.logs, out);
  if (const auto equal = last_equal(report)) {
    out << "last step after which the state is known to be the same: " << *equal << "\n";
  } else if (report.parted()) {
    out << "no step is known after which the state was the same\n";
  }
  if (report.checkpoints) print_checkpoints(*report.checkpoints, out);
  if (report.logs.parting && !report.checkpoints) {
    out << "no two checkpoints of one step differ; save more often, or give --checkpoints\n";
  }
  for (const std::string& note : report.notes) out << "note: " << printable(note) << "\n";
  return out.str();
}

std::string to_json(const BisectReport& report) {
  ordered_json out;
  out["parted"] = report.parted();
  out["common_steps"] = report.logs.common_steps;
  out["common_digests"] = report.logs.digests;
  out["last_equal_step"] = or_null(last_equal(report));
  out["step"] = nullptr;
  out["values"] = ordered_json::object();
  if (report.logs.parting) {
    out["step"] = report.logs.parting->step;
    for (const auto& [name, values] : report.logs.parting->values) {
      out["values"][name] = {values.first, values.second};
    }
  }
  out["checkpoints"] =
      report.checkpoints ? checkpoints_json(*report.checkpoints) : ordered_json(nullptr);
  out["notes"] = report.notes;
  return out.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace outboard::cli
