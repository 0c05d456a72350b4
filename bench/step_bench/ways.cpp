// SPDX-License-Identifier: Apache-2.0
#include "step_bench/ways.hpp"

#include <algorithm>
#include <array>

namespace outboard::step_bench {
namespace {

/// Scalars of one parameter that cross the link, with resident state.
constexpr double kGateBytes = 32.0;

/// Everything on the device: its own updates and norms come on top of the trainer's work, and the
/// scalars between.
double resident_bound_ns(const Workload& workload, const StepBound& bound) {
  const PlanningMachine machine = planning_machine(workload);
  const auto params = static_cast<double>(workload.total_params());
  return bound.forward_ns + bound.backward_ns + params * 1e9 / machine.device_elems_per_s +
         params * 1e9 / machine.norm_elems_per_s +
         workload.layers * kGateBytes * 1e9 / machine.link_down_bytes_per_s;
}

double serial_bound_ns(const Workload& /*workload*/, const StepBound& bound) {
  return bound.serial_ns();
}

double exact_bound_ns(const Workload& /*workload*/, const StepBound& bound) {
  return bound.exact_ns();
}

constexpr std::array kWays = {
    Way{"serial", Schedule::serial, Placement::host, Waits::phases, serial_bound_ns},
    Way{"exact", Schedule::exact, Placement::host, Waits::own, exact_bound_ns},
    Way{"resident", Schedule::exact, Placement::device_resident, Waits::own, resident_bound_ns}};

}  // namespace

std::span<const Way> all_ways() {
  return kWays;
}

const Way* way_named(std::string_view name) {
  const auto found = std::ranges::find_if(kWays, [&](const Way& way) { return way.name == name; });
  return found == kWays.end() ? nullptr : &*found;
}

std::string way_names() {
  std::string text;
  for (const Way& way : kWays) text += (text.empty() ? "" : ", ") + std::string(way.name);
  return text;
}

Config config_of(const Way& way, const Workload& workload) {
  Config config;
  config.max_grad_norm = 1e6;
  config.loss_scaling = {.dynamic = false, .initial_scale = 1.0};
  config.schedule = way.schedule;
  config.placement = way.placement;
  config.bucket_bytes = static_cast<std::size_t>(bucket_bytes_of(workload));
  return config;
}

PlannedPlacement planned_placement(const Way& way) {
  if (way.placement == Placement::host) return {};
  return {.kind = PlannedPlacement::Kind::fraction, .device_fraction = 1.0};
}

}  // namespace outboard::step_bench
