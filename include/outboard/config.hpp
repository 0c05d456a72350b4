// SPDX-License-Identifier: Apache-2.0
/// Settings: plain structs with defaults. `validate()` throws Error{invalid_config} that names the
/// field, its value and what is allowed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "outboard/export.hpp"
#include "outboard/rules.hpp"
#include "outboard/types.hpp"

namespace outboard {

/// Loss scaling. `dynamic`: doubled after `growth_interval` clean steps, halved by an overflow,
/// never below `min_scale` nor above `max_scale`. Static: stays at `initial_scale`; an overflow
/// still skips the step (Schedule::open: what overflowed). Either way step() throws
/// Error{numerics} after `give_up_after` overflows in a row.
/// What needs it is f16; a model without f16 parameters usually runs with `dynamic = false` and
/// `initial_scale = 1`.
struct OUTBOARD_API LossScaling {
  bool dynamic = true;
  /// A power of two. Each halving on the way to what the gradients bear costs one skipped step:
  /// from the default 8 to a scale of 256; from 2^32, which needs `max_scale` as large, 24.
  double initial_scale = 65536.0;
  std::uint32_t growth_interval = 2000;
  double min_scale = 1.0;
  double max_scale = 16777216.0;
  std::uint32_t give_up_after = 100;

  void validate() const;
};

/// What a step waits for. See docs/architecture.md for the schedules.
enum class Schedule : std::uint8_t {
  exact,     ///< updates and uploads hide behind the next forward; waits cover each parameter
  blocking,  ///< as exact, but step() returns when all refreshed weights are on the device: for
             ///< trainers that cannot call wait()
  open,      ///< each bucket is updated as soon as its gradients are there and finite: no clipping,
             ///< no dynamic loss scale, no Placement::automatic, and stricter promises of
             ///< gradient_ready()
  serial,    ///< step() returns after all updates, then all uploads: for comparison
};

/// Who adds up the gradients of a step's micro-batches.
enum class Accumulate : std::uint8_t {
  trainer,  ///< the trainer, in its own gradients: one gradient_ready() per parameter and step
  host,     ///< the engine, in FP32, in the order of the calls: gradient_ready() for each
            ///< micro-batch. 4 more bytes per parameter, on the host (resident: on the device)
};

/// Where the FP32 state lives and where it is updated. Never changes a bit of it.
enum class Placement : std::uint8_t {
  host,             ///< NUMA-bound host memory, updated by the host's cores
  device_resident,  ///< device memory (the rule's bytes per parameter), updated by the device
  fraction,         ///< `device_fraction` of it on the device, the rest on the host
  /// What makes the step shortest within `device_budget_bytes`: all on the host at first; chosen
  /// after two applied steps from measured speeds and times, and again when steps take 10 % more or
  /// less than predicted for a while. The step() that moves state blocks until it has moved. A
  /// forward is timed by its wait() calls: without them nothing moves. Not with Schedule::open.
  automatic,
  /// Host memory, as Placement::host; each step sends it through two buffers on the device, of the
  /// largest bucket's state each, and the device updates it there. For a device that is fast beside
  /// its host and has no room for the state: the link carries all of the state both ways instead of
  /// gradients and weights. Not with Lamb, whose norms need a parameter's whole state at once. With
  /// Accumulate::host the sums of gradients lie on the device.
  device_streamed,
};

/// What Engine::set_placement() changes: as the fields of Config of the same names.
struct PlacementChange {
  Placement placement = Placement::host;
  double device_fraction = 0.0;
  std::optional<std::size_t> device_budget_bytes{};  ///< unset: stays as it is
};

/// The machine the engine runs on, for tests and for containers that hide it.
struct OUTBOARD_API HostOptions {
  /// "" discovers the machine; otherwise a made-up one such as "numa:2 core:4 pu:1", whose nodes
  /// are bound to nothing; at most 64 nodes and 4,096 cpus.
  std::string synthetic_topology{};
  /// 0: the physical cores allowed, less `reserve_cores`. At most 4,096 on all nodes together.
  std::uint32_t threads_per_node = 0;
  /// Of the time in which there are buckets to update, the largest share in which a node's threads
  /// do so, from 0.01 to 1: after each bucket they rest. Copies across the link, and a trainer on
  /// the same cores, then find memory and cores less busy; the updates take 1/`update_share` as
  /// long. What else the node does waits out a rest too: copies to and from a bounce ring, sums of
  /// gradients, copies for a save.
  double update_share = 1.0;
  std::optional<std::uint32_t>
      reserve_cores{};  ///< cores left to the trainer; default 1 beyond 2 cores, 0 where step()
                        ///< waits for the updates (Schedule::blocking, serial)
};

enum class LogLevel : std::uint8_t { info, warning, error };
/// Receives one line without a newline, from the thread of the call that it is about, after that
/// call's work: it may call the engine. What it throws is ignored. A commit() that takes more than
/// two seconds tells of its progress on the way; a sink must not call that engine then.
using LogSink = std::function<void(LogLevel, std::string_view)>;

struct OUTBOARD_API Config {
  double max_grad_norm = 0.0;  ///< global-norm clipping; 0 or infinity: off
  LossScaling loss_scaling{};
  std::uint32_t accumulation = 1;  ///< micro-batches of a step: the sum is divided by this
  Accumulate accumulate = Accumulate::trainer;
  Schedule schedule = Schedule::exact;
  Placement placement = Placement::host;
  /// Placement::fraction: the share of the state that is on the device, in [0, 1], met within 2 %
  /// by whole buckets or refused; first the weights that the forward needs first. The host holds
  /// memory for the rest only, unless `keep_host_room`. A LAMB parameter, and with Accumulate::host
  /// any parameter, is on one side as a whole.
  double device_fraction = 0.0;
  /// Upper limit of the optimizer state on the device, with its stream buffers, sums of gradients
  /// and norms; by default what is free, of which Placement::automatic leaves a twentieth of the
  /// device to the trainer. What is asked for beyond it is refused by commit().
  std::size_t device_budget_bytes = SIZE_MAX;
  /// The host holds memory for all of the state and its staging, for what is on the device too, so
  /// that Engine::set_placement() may move it. Placement::host, device_streamed and automatic have
  /// that anyway.
  bool keep_host_room = false;
  /// Host memory for state that updates change before a running Engine::save_async() has written
  /// it, at most what all of the state takes: allocated by the first of these calls. An update that
  /// finds no room in it waits for the save.
  std::size_t snapshot_bytes = std::size_t{256} << 20;
  /// Of gradients; at least 8 KiB. A bucket of f32 parameters has at least 4,096 elements, 16 KiB.
  std::size_t bucket_bytes = std::size_t{4} << 20;
  /// Upper limit of pinned staging, in slots of one bucket; nullopt: one for each bucket. Fewer
  /// than the buckets: the rest is pageable and reached through a pinned bounce ring, or a pageable
  /// one if an earlier commit() has left no slot.
  std::optional<std::uint32_t> pinned_slots{};
  /// commit() throws Error{out_of_memory} where the device refuses to pin what `pinned_slots`
  /// allow, and so do it and set_placement() where it refuses to pin streamed state. By default
  /// they warn once, and the bounce ring serves, or copies from and to pageable memory.
  bool strict_pinning = false;
  bool check_waits =
      false;  ///< fill stale device weights with NaN, to expose missing waits: at step(), with
              ///< Schedule::open as soon as they are sure to be refreshed, by step() at the
              ///< latest: an engine destroyed before it leaves those that wait for it NaN
  HostOptions host{};
  LogSink log{};  ///< none: silent

  void validate() const;
};

}  // namespace outboard
