// SPDX-License-Identifier: Apache-2.0
/// One steady-state step as a discrete-event schedule over the device's compute, both directions of
/// the link, and the NUMA nodes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "outboard/config.hpp"
#include "plan/cost_model.hpp"
#include "plan/plan.hpp"
#include "plan/step_model.hpp"

namespace outboard::plan {

/// What an update waits for, and what the next forward waits for.
enum class StepSchedule : std::uint8_t {
  exact,     ///< updates once all norms are known; each piece of forward for its own weights
  open,      ///< each bucket is updated as it arrives and its own norms are known
  blocking,  ///< as exact, but the next forward waits for all weights
  serial,    ///< all copies, then all updates, then all uploads, then the forward
};

/// What an engine of this schedule does.
[[nodiscard]] StepSchedule step_schedule(Schedule schedule) noexcept;

enum class Resource : std::uint8_t { compute, link_down, link_up, node };

enum class OpKind : std::uint8_t {
  backward,   ///< index: piece of backward
  forward,    ///< index: piece of forward, of the next step
  norm,       ///< index: piece of backward whose gradients are reduced, or added to sums first
  gradient,   ///< a copy to the host; index: bucket
  sum,        ///< a gradient is added up on the host; index: bucket
  pass,       ///< forward of a micro-batch but the first; index: its number from 0
  gate,       ///< scalars to the host; index 0, with an open gate the piece of backward behind them
  update,     ///< on a node or on the device; index: bucket
  weight,     ///< a copy to the device; index: bucket
  unpack,     ///< weights that came packed go where they belong; index: bucket
  state_in,   ///< streamed state to the device; index: bucket
  state_out,  ///< streamed state to the host; index: bucket
};

struct TimelineEntry {
  Resource resource = Resource::compute;
  std::uint32_t node = 0;  ///< of Resource::node
  OpKind kind = OpKind::backward;
  std::uint32_t index = 0;
  double start_us = 0.0;  ///< from the end of a forward
  double end_us = 0.0;
};

/// Time in which the device does none of the trainer's work, by what it waits for.
struct ExposedTime {
  double gradients_us = 0.0;  ///< copies of gradients to the host, and their sums there
  double gate_us = 0.0;       ///< the gate's scalars
  double update_us = 0.0;     ///< updates on the host
  double weights_us = 0.0;    ///< copies of weights or streamed state to the device
  double device_us = 0.0;     ///< the engine's own kernels: norms, updates on the device
  [[nodiscard]] double total_us() const {
    return gradients_us + gate_us + update_us + weights_us + device_us;
  }
};

struct Prediction {
  double step_us = 0.0;      ///< from one end of forward to the next: forward + backward + exposed
  double forward_us = 0.0;   ///< of the first micro-batch
  double backward_us = 0.0;  ///< and all of the other micro-batches
  ExposedTime exposed;
  // Busy time within the step:
  double compute_us = 0.0;  ///< the trainer's work and the engine's kernels
  double link_down_us = 0.0;
  double link_up_us = 0.0;
  std::vector<double> node_us;
  std::uint64_t bytes_down = 0;
  std::uint64_t bytes_up = 0;
  std::uint64_t events = 0;  ///< simulated, warming up included
};

/// Simulates until the step repeats. `places`: one for each bucket of the model. Fills `timeline`,
/// if not null, with the operations that start within the step, in the order of their start. Of
/// many micro-batches two are simulated, unless there is a timeline: each one between takes as long
/// as the slowest resource does.
/// Deterministic. @throws Error{invalid_argument} for a node that has no rate, or another number of
/// places.
[[nodiscard]] Prediction simulate(const StepModel& model, const Rates& rates,
                                  std::span<const BucketPlace> places, StepSchedule schedule,
                                  std::vector<TimelineEntry>* timeline = nullptr);

}  // namespace outboard::plan
