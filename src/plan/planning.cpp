// SPDX-License-Identifier: Apache-2.0
// The public face of this room: joins layout, planner and simulator.
#include "outboard/planning.hpp"

#include <algorithm>
#include <string>

#include "outboard/error.hpp"
#include "plan/placement.hpp"
#include "plan/planned_shapes.hpp"
#include "plan/planned_timeline.hpp"
#include "plan/planner.hpp"

namespace outboard {
namespace {

static_assert(PlannedWork::kNoParameter == plan::kNoParameter);

plan::Rates rates_of(const PlanningMachine& machine) {
  return {.link_down_bytes_per_s = machine.link_down_bytes_per_s,
          .link_up_bytes_per_s = machine.link_up_bytes_per_s,
          .node_elems_per_s = machine.node_elems_per_s,
          .device_elems_per_s = machine.device_elems_per_s,
          .norm_elems_per_s = machine.norm_elems_per_s,
          .node_sums_per_s = machine.node_sums_per_s,
          .device_sums_per_s = machine.device_sums_per_s,
          .copy_us = machine.copy_us,
          .kernel_us = machine.kernel_us};
}

std::vector<plan::ComputePiece> pieces_of(const std::vector<PlannedWork>& work) {
  std::vector<plan::ComputePiece> pieces;
  pieces.reserve(work.size());
  for (const PlannedWork& piece : work) pieces.push_back({piece.us, piece.parameter});
  return pieces;
}

plan::Policy policy_of(const PlannedPlacement& placement, const Config& config) {
  plan::Policy policy;
  switch (placement.kind) {
    case PlannedPlacement::Kind::host:
      policy.kind = plan::PolicyKind::host_only;
      break;
    case PlannedPlacement::Kind::fraction:
      policy.kind = plan::PolicyKind::fraction;
      break;
    case PlannedPlacement::Kind::automatic:
      policy.kind = plan::PolicyKind::automatic;
      break;
    case PlannedPlacement::Kind::streamed:
      policy.kind = plan::PolicyKind::streamed;
      break;
  }
  policy.device_fraction = placement.device_fraction;
  policy.streaming = false;  // as Placement::automatic
  policy.schedule = plan::step_schedule(config.schedule);
  return policy;
}

/// Rates of sums are for all nodes or for none.
void require_sums_of_nodes(const PlanningMachine& machine) {
  const std::size_t sums = machine.node_sums_per_s.size();
  if (sums == 0 || sums == machine.node_elems_per_s.size()) return;
  throw Error(ErrorCode::invalid_argument, "plan_step(): PlanningMachine::node_sums_per_s has " +
                                               std::to_string(sums) +
                                               " entries and node_elems_per_s " +
                                               std::to_string(machine.node_elems_per_s.size()) +
                                               "; give one for each NUMA node, or none");
}

void take_times(const plan::Prediction& prediction, PlannedStep& out) {
  out.step_us = prediction.step_us;
  out.forward_us = prediction.forward_us;
  out.backward_us = prediction.backward_us;
  out.exposed_gradients_us = prediction.exposed.gradients_us;
  out.exposed_gate_us = prediction.exposed.gate_us;
  out.exposed_update_us = prediction.exposed.update_us;
  out.exposed_weights_us = prediction.exposed.weights_us;
  out.exposed_device_us = prediction.exposed.device_us;
  out.link_down_us = prediction.link_down_us;
  out.link_up_us = prediction.link_up_us;
  out.update_us = *std::ranges::max_element(prediction.node_us);
  out.device_us = prediction.compute_us - prediction.forward_us - prediction.backward_us;
  out.bytes_down = prediction.bytes_down;
  out.bytes_up = prediction.bytes_up;
}

void take_places(const plan::Plan& found, const plan::ModelLayout& layout, PlannedStep& out) {
  std::uint64_t elems = 0;
  for (std::size_t b = 0; b < found.buckets.size(); ++b) {
    elems += layout.buckets[b].padded_elems;
    if (found.buckets[b].home == plan::Home::device_resident) ++out.resident_buckets;
    if (found.buckets[b].home == plan::Home::device_streamed) ++out.streamed_buckets;
  }
  out.buckets = found.buckets.size();
  out.device_state_bytes = found.device_bytes;
  out.resident_parameters.assign(layout.parameters.size(), false);
  for (const plan::Segment& segment : layout.segments) {
    if (found.buckets[segment.bucket].home == plan::Home::host) continue;
    out.resident_parameters[segment.parameter] = true;
  }
  if (elems == 0) return;
  out.device_fraction = static_cast<double>(found.resident_elems) / static_cast<double>(elems);
}

}  // namespace

PlannedStep plan_step(const PlannedModel& model, const PlanningMachine& machine,
                      const Config& config, const PlannedPlacement& placement, Timeline* timeline) {
  config.validate();
  if (machine.node_elems_per_s.empty()) {
    throw Error(ErrorCode::invalid_argument,
                "plan_step(): PlanningMachine::node_elems_per_s is empty; give one rate for each "
                "NUMA node");
  }
  require_sums_of_nodes(machine);
  const plan::Rates rates = rates_of(machine);
  const bool sums = config.accumulate == Accumulate::host;
  const std::vector<double> weights(rates.node_elems_per_s.size(), 1.0);
  const plan::ModelLayout layout =
      plan::make_layout(plan::shapes_of(model.parameters, sums), config.bucket_bytes, weights);
  plan::StepTimes times{.forward = pieces_of(model.forward), .backward = pieces_of(model.backward)};
  if (sums) times.micro_batches = config.accumulation;
  times.ring_slots =
      static_cast<std::uint32_t>(plan::sum_ring_slots(config, layout.buckets.size()));
  const plan::Policy policy = policy_of(placement, config);
  const std::uint64_t state_bytes = plan::wish_of(config).memory.state_bytes_per_elem;
  const plan::Plan found =
      plan::plan(layout, rates, times, {placement.device_budget_bytes, state_bytes}, policy);
  PlannedStep out;
  std::vector<plan::TimelineEntry> entries;
  plan::StepModel step = plan::make_step_model(layout, times);
  step.state_bytes_per_elem = state_bytes;
  take_times(plan::simulate(step, rates, found.buckets, policy.schedule,
                            timeline == nullptr ? nullptr : &entries),
             out);
  take_places(found, layout, out);
  if (timeline != nullptr) *timeline = plan::public_timeline(entries, times);
  return out;
}

}  // namespace outboard
