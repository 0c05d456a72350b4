// SPDX-License-Identifier: Apache-2.0
/// What training a model will take, in bytes and in time, before anything is allocated: for a
/// machine that is here, or for one that is not. Pure functions of their arguments.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "outboard/config.hpp"
#include "outboard/export.hpp"
#include "outboard/stats.hpp"
#include "outboard/timeline.hpp"
#include "outboard/types.hpp"

namespace outboard {

/// Speeds. 0 means instant.
struct OUTBOARD_API PlanningMachine {
  double link_down_bytes_per_s = 0.0;  ///< device to host, while the other direction is busy too
  double link_up_bytes_per_s = 0.0;    ///< host to device, likewise
  std::vector<double> node_elems_per_s = {0.0};  ///< parameters each NUMA node updates per second
  double device_elems_per_s = 0.0;               ///< parameters the device would update per second
  double norm_elems_per_s = 0.0;  ///< gradients whose squares the device adds up per second
  /// Accumulate::host: 16-bit gradients that each NUMA node adds to their sums per second. Empty:
  /// three times what it updates, as an addition moves a third of the bytes.
  std::vector<double> node_sums_per_s{};
  double device_sums_per_s = 0.0;  ///< likewise, on the device
  double copy_us = 0.0;            ///< fixed cost of a copy across the link
  double kernel_us = 0.0;          ///< fixed cost of one of the engine's kernels
};

struct PlannedParameter {
  std::uint64_t elems = 0;
  DType dtype = DType::f16;  ///< of the weight and its gradient
};

/// A piece of the trainer's work on the device.
struct PlannedWork {
  static constexpr std::uint32_t kNoParameter = UINT32_MAX;
  double us = 0.0;
  std::uint32_t parameter = kNoParameter;  ///< index into PlannedModel::parameters
};

/// One step of a trainer. A tied weight may occur several times in `forward` and in `backward`; its
/// gradient is complete with its last piece of backward. With Accumulate::host the two are those of
/// each of Config::accumulation micro-batches; what the trainer adds up itself is part of
/// `backward`.
struct OUTBOARD_API PlannedModel {
  std::vector<PlannedParameter> parameters;  ///< in the order of add_parameter()
  std::vector<PlannedWork> forward;          ///< in order; each piece needs its parameter refreshed
  std::vector<PlannedWork> backward;         ///< in order; every parameter occurs
};

/// Where the FP32 state is to be.
struct OUTBOARD_API PlannedPlacement {
  enum class Kind : std::uint8_t {
    host,       ///< all of it on the host
    fraction,   ///< `device_fraction` of it on the device, within 2 %
    automatic,  ///< what makes the step shortest within `device_budget_bytes`
    streamed,   ///< all of it on the host, sent through the device and updated there
  };
  Kind kind = Kind::host;
  double device_fraction = 0.0;
  std::uint64_t device_budget_bytes = UINT64_MAX;  ///< for optimizer state
};

/// A steady-state step: forward + backward + exposed.
struct OUTBOARD_API PlannedStep {
  double step_us = 0.0;
  double forward_us = 0.0;   ///< of the first micro-batch
  double backward_us = 0.0;  ///< and all of the other micro-batches
  // Time in which the device does none of the trainer's work, by what it waits for:
  double exposed_gradients_us = 0.0;  ///< gradients on their way to the host, or into its sums
  double exposed_gate_us = 0.0;       ///< the norm's scalars
  double exposed_update_us = 0.0;     ///< updates on the host
  double exposed_weights_us = 0.0;    ///< weights on their way to the device
  double exposed_device_us = 0.0;     ///< norms and updates that the device does itself
  // What each resource is busy for, hidden or not:
  double link_down_us = 0.0;
  double link_up_us = 0.0;
  double update_us = 0.0;  ///< the busiest node, with updates and sums
  double device_us = 0.0;  ///< the engine's kernels on the device
  std::uint64_t bytes_down = 0;
  std::uint64_t bytes_up = 0;
  std::uint64_t buckets = 0;
  std::uint64_t resident_buckets = 0;
  std::uint64_t streamed_buckets = 0;
  std::uint64_t device_state_bytes = 0;
  double device_fraction = 0.0;  ///< of the state, as it came out
  /// One entry for each parameter: whether the device updates any of it. With
  /// Accumulate::trainer its gradient is then read in step(), where it is.
  std::vector<bool> resident_parameters{};

  [[nodiscard]] double exposed_us() const {
    return exposed_gradients_us + exposed_gate_us + exposed_update_us + exposed_weights_us +
           exposed_device_us;
  }
};

/// Simulates a step under `config.schedule` with buckets of `config.bucket_bytes`. Where the state
/// is to be says `placement`, not `config`. `timeline`, if not null, gets what runs in the step,
/// from the end of one forward to the end of the next.
/// @throws Error{invalid_config} for settings (as an engine's: Schedule::open wants a fixed loss
/// scale here too), Error{invalid_argument} for a model or rates that make no sense,
/// Error{out_of_memory} for a fraction, or stream buffers, beyond the budget.
[[nodiscard]] OUTBOARD_API PlannedStep plan_step(const PlannedModel& model,
                                                 const PlanningMachine& machine,
                                                 const Config& config,
                                                 const PlannedPlacement& placement = {},
                                                 Timeline* timeline = nullptr);

/// What Engine::ledger() will say after one commit() of all `parameters`, in groups of AdamW or
/// Adam, without addresses, on a machine of `nodes` NUMA nodes of equally many threads that pins
/// what it is asked to. Parameters of a later commit() have memory of their own: plan them apart.
/// @throws Error{invalid_config} for settings, Error{invalid_argument} for no node.
[[nodiscard]] OUTBOARD_API MemoryLedger plan_memory(std::span<const PlannedParameter> parameters,
                                                    std::uint32_t nodes, const Config& config);

}  // namespace outboard
