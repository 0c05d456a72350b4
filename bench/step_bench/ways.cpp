// SPDX-License-Identifier: Apache-2.0
#include "step_bench/ways.hpp"

#include <algorithm>
#include <array>

#include "plan/placement.hpp"

namespace outboard::step_bench {
namespace {

/// Scalars of one parameter that cross the link, with resident state.
constexpr auto kGateBytes =
    static_cast<double>(plan::kGateBytesPerParameter + plan::kOverflowCountBytes);

double serial_ns(const Workload& workload, double /*fraction*/) {
  return bound_of(cost_of(workload)).serial_ns();
}

double blocking_ns(const Workload& workload, double /*fraction*/) {
  return bound_of(cost_of(workload)).blocking_ns();
}

/// The scalars of a bucket's parameters go to the host in a copy of their own; norms take the
/// device's time.
double open_ns(const Workload& workload, double /*fraction*/) {
  const StepBound bound = bound_of(cost_of(workload));
  return bound.open_ns() +
         static_cast<double>(workload.total_params()) * 1e9 /
             planning_machine(workload).norm_elems_per_s +
         workload.layers * kGateBytes * 1e9 / workload.link_down_bytes_per_s;
}

/// What is on the device is updated by it between backward and forward.
double exact_ns(const Workload& workload, double fraction) {
  const StepCost cost = cost_of(workload);
  if (fraction == 0.0) return bound_of(cost).exact_ns();
  std::vector<bool> on_device;
  for (const plan::Home home : plan::homes_of(
           layout_of(cost), {Placement::fraction, fraction, plan::DeviceMemory{UINT64_MAX}})) {
    on_device.push_back(home == plan::Home::device_resident);
  }
  const PlanningMachine machine = planning_machine(workload);
  const auto params = static_cast<double>(workload.total_params());
  return bound_of(cost, on_device).exact_ns() +
         params * fraction * 1e9 / machine.device_elems_per_s +
         params * 1e9 / machine.norm_elems_per_s +
         workload.layers * kGateBytes * 1e9 / machine.link_down_bytes_per_s;
}

double none(const Workload& /*workload*/) {
  return 0.0;
}

/// As many whole buckets as come nearest to a half.
double half(const Workload& workload) {
  const plan::ModelLayout layout = layout_of(cost_of(workload));
  double all = 0.0;
  for (const plan::Bucket& bucket : layout.buckets) {
    all += static_cast<double>(bucket.padded_elems);
  }
  double have = 0.0;
  for (const plan::Bucket& bucket : layout.buckets) {
    const auto elems = static_cast<double>(bucket.padded_elems);
    if (have + elems / 2 > all / 2) break;
    have += elems;
  }
  return have / all;
}

double whole(const Workload& /*workload*/) {
  return 1.0;
}

constexpr std::array kWays = {Way{"serial", Schedule::serial, none, Waits::phases, serial_ns},
                              Way{"blocking", Schedule::blocking, none, Waits::all, blocking_ns},
                              Way{"exact", Schedule::exact, none, Waits::own, exact_ns},
                              Way{"open", Schedule::open, none, Waits::own, open_ns},
                              Way{"half", Schedule::exact, half, Waits::own, exact_ns},
                              Way{"resident", Schedule::exact, whole, Waits::own, exact_ns}};

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
  config.max_grad_norm = way.schedule == Schedule::open ? 0.0 : 1e6;
  config.loss_scaling = {.dynamic = false, .initial_scale = 1.0};
  config.schedule = way.schedule;
  if (workload.micro_batches > 0) {
    config.accumulate = Accumulate::host;
    config.accumulation = workload.micro_batches;
  }
  const double fraction = way.device_fraction(workload);
  if (fraction == 1.0) {
    config.placement = Placement::device_resident;
  } else if (fraction > 0.0) {
    config.placement = Placement::fraction;
    config.device_fraction = fraction;
  }
  config.bucket_bytes = static_cast<std::size_t>(bucket_bytes_of(workload));
  return config;
}

PlannedPlacement planned_placement(const Way& way, const Workload& workload) {
  const double fraction = way.device_fraction(workload);
  if (fraction == 0.0) return {};
  return {.kind = PlannedPlacement::Kind::fraction, .device_fraction = fraction};
}

}  // namespace outboard::step_bench
