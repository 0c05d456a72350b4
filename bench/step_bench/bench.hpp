// SPDX-License-Identifier: Apache-2.0
/// Runs a workload in several ways, by turns, and compares each with its bound and its prediction.
#pragma once

#include <cstdint>
#include <vector>

#include "outboard/planning.hpp"
#include "outboard/timeline.hpp"
#include "step_bench/periods.hpp"
#include "step_bench/ways.hpp"
#include "step_bench/workload.hpp"

namespace outboard::step_bench {

enum class Clock : std::uint8_t {
  virtual_time,  ///< exact, the same on every machine
  real,          ///< threads and sleeps: what this machine makes of it
};

struct WayResult {
  const Way* way = nullptr;
  Clock clock = Clock::virtual_time;
  std::vector<double> steps_us;
  Period mean;  ///< of all steps
  double bound_us = 0.0;
  PlannedStep predicted;
  std::uint64_t digest = 0;  ///< of all state, after the last step
  Timeline measured;         ///< of one of the steps
  Timeline planned;

  [[nodiscard]] double longest_us() const;
  [[nodiscard]] double shortest_us() const;
  /// Of the longest step: at most 1 where the bound holds.
  [[nodiscard]] double ratio() const { return longest_us() / bound_us; }
  /// Share of what link, host and device do for the engine that the trainer's work hides.
  [[nodiscard]] double overlap() const;
  /// Of the mean step: positive if it was predicted too long.
  [[nodiscard]] double prediction_error() const { return predicted.step_us / mean.step - 1.0; }
};

struct StepBench {
  Workload workload;
  StepBound bound;  ///< with the rates of virtual time
  std::vector<WayResult> results;
  /// Every way leaves the same bits.
  [[nodiscard]] bool same_bits() const;
};

/// All ways on each clock. In real time the ways take turns, step by step; bound and prediction are
/// then made with the rate that the host was measured to have in that way.
/// @throws Error as validate(), and what an engine throws that gets no memory.
[[nodiscard]] StepBench measure(const Workload& workload, const std::vector<const Way*>& ways,
                                const std::vector<Clock>& clocks);

}  // namespace outboard::step_bench
