// SPDX-License-Identifier: Apache-2.0
/// The ways to run a step that are compared: one line of a table each.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "outboard/config.hpp"
#include "outboard/planning.hpp"
#include "step_bench/workload.hpp"

namespace outboard::step_bench {

/// What a layer's forward waits for.
enum class Waits : std::uint8_t {
  own,     ///< the layer's weights
  all,     ///< every layer's weights
  phases,  ///< every layer's weights, which go up after all updates, which come after all copies
};

struct Way {
  const char* name = "";
  Schedule schedule = Schedule::exact;
  double (*device_fraction)(const Workload& workload) = nullptr;  ///< of the state
  Waits waits = Waits::own;
  /// The step's bound (docs/architecture.md) in nanoseconds, with `fraction` on the device.
  double (*bound_ns)(const Workload& workload, double fraction) = nullptr;
};

[[nodiscard]] std::span<const Way> all_ways();
/// Null if no way is called so.
[[nodiscard]] const Way* way_named(std::string_view name);
/// "serial, exact, ...".
[[nodiscard]] std::string way_names();

/// The engine's settings. Clipping is on where the schedule has it, and its norm so large that it
/// never changes a bit: the ways can be compared.
[[nodiscard]] Config config_of(const Way& way, const Workload& workload);
[[nodiscard]] PlannedPlacement planned_placement(const Way& way, const Workload& workload);

}  // namespace outboard::step_bench
