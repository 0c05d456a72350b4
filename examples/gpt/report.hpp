// SPDX-License-Identifier: Apache-2.0
/// What the program prints and logs, as text made from plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "outboard/outboard.hpp"
#include "time_split.hpp"

namespace gpt {

/// What the kernels' matrix products take when nothing else is done, recomputation counted.
struct ProductRate {
  double tokens_per_s = 0.0;  ///< that they alone would allow
  double flops_per_s = 0.0;
  double share = 0.0;  ///< of the time of all training steps
  std::size_t threads = 1;
};

/// What one training step gave.
struct StepReport {
  outboard::StepResult result{};
  double loss = 0.0;  ///< mean over the step's tokens, nats
  double lr = 0.0;
  double ms = 0.0;  ///< in virtual time: virtual
  std::size_t tokens = 0;
  std::optional<TimeSplit> split{};        ///< real time only
  std::uint64_t applied = 0, skipped = 0;  ///< steps so far, this one included
  double update_busy_ms = 0.0;             ///< host nodes updating since the step before
  std::optional<std::uint64_t> digest{};
  std::optional<double> held_out{};       ///< nats per token, where it was measured
  std::optional<double> order2{};         ///< that of the model to beat, there as well
  std::optional<ProductRate> products{};  ///< after the last step
  std::uint64_t steps = 0;                ///< of the whole run
  double eta_s = 0.0;
};

/// Sums over `steps` training steps, evaluation not included.
struct TimeReport {
  std::uint64_t steps = 0;
  std::size_t tokens = 0, parameters = 0;
  double ms = 0.0;
  std::optional<TimeSplit> split{};
  outboard::StepStats stats{};
  std::optional<ProductRate> products{};
};

/// "3:07", "2:10:00".
[[nodiscard]] std::string show_time(double seconds);
/// What the step lines mean, and the heading above them.
[[nodiscard]] std::string step_heading();
[[nodiscard]] std::string step_line(const StepReport& report);
/// Where the held-out loss was measured. `unit`: what it is of, as "byte".
[[nodiscard]] std::string held_out_line(const StepReport& report, const char* unit);
/// One JSON object. Doubles also as hexadecimal floats, so that two runs can be compared bit by
/// bit.
[[nodiscard]] std::string json_line(const StepReport& report);
[[nodiscard]] std::string time_text(const TimeReport& report);

}  // namespace gpt
