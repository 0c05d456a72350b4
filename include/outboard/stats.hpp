// SPDX-License-Identifier: Apache-2.0
/// What the engine reports: the result of a step, counters, and the memory ledger.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "outboard/export.hpp"
#include "outboard/types.hpp"

namespace outboard {

enum class StepOutcome : std::uint8_t {
  applied,  ///< every parameter with a gradient is being updated
  skipped,  ///< overflow: state, step counts and weights are bit-unchanged
  empty,    ///< no parameter had a gradient: nothing to do
  /// Schedule::open: parameters with a non-finite gradient were left out, bit-unchanged; the others
  /// are being updated.
  partial,
};

/// The first non-finite gradient element, in registration order.
struct NonFinite {
  ParameterId parameter;
  std::string_view name;      ///< borrowed from the engine, until its end
  std::uint64_t element = 0;  ///< of the parameter
  std::uint64_t count = 0;    ///< non-finite elements in this parameter
  bool is_nan = false;        ///< else an infinity
};

struct StepResult {
  StepOutcome outcome = StepOutcome::empty;
  std::uint64_t step = 0;  ///< calls of step() so far, this one included
  /// Global L2 norm, unscaled, before clipping; if skipped or partial NaN, Inf or >= 2^63.
  double grad_norm = 0.0;
  double clip = 1.0;             ///< factor in (0, 1] that clipping applied
  double loss_scale = 1.0;       ///< the one these gradients were made with
  double next_loss_scale = 1.0;  ///< the one for the next backward
  std::optional<NonFinite> non_finite;

  [[nodiscard]] bool applied() const { return outcome == StepOutcome::applied; }
  [[nodiscard]] bool skipped() const { return outcome == StepOutcome::skipped; }
  [[nodiscard]] bool partial() const { return outcome == StepOutcome::partial; }
};

/// Totals since commit(). Times are those of the device's clock (virtual in virtual time).
struct StepStats {
  std::uint64_t steps_applied = 0;
  std::uint64_t steps_skipped = 0;
  std::uint64_t steps_partial = 0;  ///< Schedule::open: neither applied nor skipped as a whole
  std::uint64_t parameters_left_out = 0;  ///< of partial and skipped steps of Schedule::open
  std::uint64_t gradient_bytes_down = 0;  ///< device to host
  std::uint64_t weight_bytes_up = 0;      ///< host to device, refreshed weights
  std::uint64_t gate_bytes_down = 0;      ///< the gate's scalars
  std::uint64_t state_bytes_up = 0;       ///< streamed state, to be updated on the device
  std::uint64_t state_bytes_down = 0;     ///< streamed state, updated
  std::uint64_t bounce_bytes = 0;  ///< host copies between pageable slots and the bounce ring
  /// State that an update overtook while save_async() was writing: copied first.
  std::uint64_t save_copied_bytes = 0;
  std::uint64_t copies_down = 0;
  std::uint64_t copies_up = 0;
  std::uint64_t host_device_syncs = 0;  ///< times a caller's thread waited for the device
  /// Counted by the step() after, resident ones by the step() after that (Schedule::open: each one
  /// later at most).
  std::uint64_t weight_overflows = 0;  ///< finite masters that became Inf as weights
  double gate_wait_us = 0.0;           ///< step() waiting for the gradients' scalars
  double drain_wait_us = 0.0;          ///< step() waiting for the step before
  double finish_wait_us = 0.0;         ///< step() waiting for its own updates and uploads
  double refresh_wait_us = 0.0;        ///< wait(), gradient_ready(), wait_gradient_taken() blocking
  /// Updates held back by a running save_async(), for which Config::snapshot_bytes had no room: the
  /// time in which at least one waited, and that of calls that did.
  double save_wait_us = 0.0;
  double update_busy_us = 0.0;  ///< nodes busy with all they do for the engine, added up
  // As it is now:
  double device_fraction = 0.0;  ///< of the state, on the device
  // Placement::automatic:
  std::uint64_t moves = 0;         ///< times that it has moved state
  double predicted_step_us = 0.0;  ///< for the homes that the state has now; 0: nothing planned yet
  double measured_step_us = 0.0;   ///< on the device's clock, the last step that could be compared
};

enum class MemoryPlace : std::uint8_t { host_pinned, host_pageable, device };

/// Pages of host memory.
enum class PageKind : std::uint8_t {
  small,             ///< of the system's usual size
  transparent_huge,  ///< 2 MiB as far as the kernel has them: it was asked
  reserved_huge,     ///< 2 MiB, which an administrator has set aside (vm.nr_hugepages)
};

struct LedgerEntry {
  std::string purpose;  ///< "master weight", "exp_avg", "gradient and weight staging", ...
  MemoryPlace place = MemoryPlace::host_pageable;
  std::uint32_t node = 0;  ///< index of the NUMA node, host memory only
  std::size_t bytes = 0;
  const void* address = nullptr;  ///< start of the range; device addresses are not dereferenceable
  /// The system's number of a NUMA node without cpus that holds it, where `node` lacked room:
  /// `node` is still the one whose cores update it.
  std::optional<std::uint32_t> memory_node{};
  PageKind pages = PageKind::small;  ///< host memory, but for the end that fills no huge page
};

/// Every byte of state and staging that the engine holds, by purpose; a value to print or to sum.
struct OUTBOARD_API MemoryLedger {
  std::vector<LedgerEntry> entries;
  std::uint64_t trainable_elems = 0;

  [[nodiscard]] std::size_t bytes(MemoryPlace place) const;
  /// One line per entry and a total per place, with bytes per parameter.
  [[nodiscard]] std::string to_string() const;
};

}  // namespace outboard
