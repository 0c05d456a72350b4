// SPDX-License-Identifier: Apache-2.0
/// What the program prints and logs, as text made from plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "outboard/outboard.hpp"

namespace text {

/// What one training step gave.
struct StepReport {
  outboard::StepResult result;
  double loss = 0.0;  ///< mean over the batch, nats per byte
  double ms = 0.0;
  std::size_t batch = 0;
  std::optional<std::uint64_t> digest;
  std::optional<double> held_out;  ///< nats per byte, where it was measured
};

/// Sums over `steps` training steps, evaluation not included.
struct TimeReport {
  std::uint64_t steps = 0;
  std::size_t batch = 0, parameters = 0;
  double train_ms = 0.0, kernel_ms = 0.0;
  bool virtual_time = false;
  outboard::StepStats stats;
};

/// The heading above the step lines.
[[nodiscard]] std::string step_heading();
[[nodiscard]] std::string step_line(const StepReport& report);
/// One JSON object. Doubles also as hexadecimal floats, so that two runs can be compared bit by
/// bit.
[[nodiscard]] std::string json_line(const StepReport& report);
[[nodiscard]] std::string time_text(const TimeReport& report);

}  // namespace text
