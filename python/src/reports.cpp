// SPDX-License-Identifier: Apache-2.0
#include "reports.hpp"

#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

namespace outboard::python {
namespace nb = nanobind;
namespace {

const char* place_name(MemoryPlace place) {
  switch (place) {
    case MemoryPlace::host_pinned:
      return "host_pinned";
    case MemoryPlace::host_pageable:
      return "host_pageable";
    case MemoryPlace::device:
      break;
  }
  return "device";
}

// Values of a checkpoint's entries are any bytes.
nb::dict entries_of(const std::map<std::string, std::string>& entries) {
  nb::dict out;
  for (const auto& [key, value] : entries) {
    out[key.c_str()] = nb::bytes(value.data(), value.size());
  }
  return out;
}

}  // namespace

nb::dict to_dict(const StepStats& stats) {
  nb::dict out;
  out["steps_applied"] = stats.steps_applied;
  out["steps_skipped"] = stats.steps_skipped;
  out["steps_partial"] = stats.steps_partial;
  out["parameters_left_out"] = stats.parameters_left_out;
  out["gradient_bytes_down"] = stats.gradient_bytes_down;
  out["weight_bytes_up"] = stats.weight_bytes_up;
  out["gate_bytes_down"] = stats.gate_bytes_down;
  out["state_bytes_up"] = stats.state_bytes_up;
  out["state_bytes_down"] = stats.state_bytes_down;
  out["bounce_bytes"] = stats.bounce_bytes;
  out["weight_overflows"] = stats.weight_overflows;
  out["gate_wait_us"] = stats.gate_wait_us;
  out["drain_wait_us"] = stats.drain_wait_us;
  out["finish_wait_us"] = stats.finish_wait_us;
  out["refresh_wait_us"] = stats.refresh_wait_us;
  out["update_busy_us"] = stats.update_busy_us;
  out["device_fraction"] = stats.device_fraction;
  out["moves"] = stats.moves;
  return out;
}

nb::dict to_dict(const SaveReport& report) {
  nb::dict out;
  out["folder"] = report.folder;
  out["bytes"] = report.bytes;
  out["digest"] = report.digest;
  out["warning"] = report.warning;
  return out;
}

nb::dict to_dict(const LoadReport& report) {
  nb::dict out;
  out["folder"] = report.folder;
  out["steps"] = report.steps;
  out["entries"] = entries_of(report.entries);
  out["missing"] = report.missing;
  out["extra"] = report.extra;
  out["differences"] = report.differences;
  return out;
}

nb::dict to_dict(const CheckpointInfo& info) {
  nb::dict out;
  out["folder"] = info.folder;
  out["written_by"] = info.written_by;
  out["bytes"] = info.bytes;
  out["steps"] = info.steps;
  out["steps_applied"] = info.steps_applied;
  out["steps_skipped"] = info.steps_skipped;
  out["digest"] = info.digest;
  out["loss_scale"] = info.loss_scale;
  out["groups"] = info.groups;
  out["entries"] = entries_of(info.entries);
  nb::list parameters;
  for (const CheckpointParameter& one : info.parameters) {
    nb::dict parameter;
    parameter["name"] = one.name;
    parameter["dtype"] = dtype_name(one.dtype);
    parameter["elems"] = one.elems;
    parameter["step_count"] = one.step_count;
    parameter["group"] = one.group;
    parameters.append(parameter);
  }
  out["parameters"] = parameters;
  return out;
}

nb::dict to_dict(const MemoryLedger& ledger) {
  nb::list entries;
  for (const LedgerEntry& entry : ledger.entries) {
    nb::dict one;
    one["purpose"] = entry.purpose;
    one["place"] = place_name(entry.place);
    one["node"] = entry.node;
    one["bytes"] = entry.bytes;
    entries.append(one);
  }
  nb::dict out;
  out["text"] = ledger.to_string();
  out["trainable_elems"] = ledger.trainable_elems;
  out["entries"] = entries;
  return out;
}

}  // namespace outboard::python
