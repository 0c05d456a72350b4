// SPDX-License-Identifier: Apache-2.0
#include "step_bench/workload.hpp"

#include <algorithm>
#include <cmath>

#include "core/round_up.hpp"
#include "core/show_number.hpp"
#include "outboard/error.hpp"

namespace outboard::step_bench {
namespace {

constexpr double kUpdateBytes = 28.0;  // of device memory, for one parameter
constexpr double kNormBytes = 2.0;
constexpr double kSumBytes = 10.0;
constexpr std::uint64_t kElementBytes = 2;

void require(const char* what, double value, double low, double high) {
  if (value >= low && value <= high) return;  // false for NaN as well
  throw Error(ErrorCode::invalid_argument,
              std::string("bench step: ") + what + " is " + core::show_number(value) + "; give " +
                  core::show_number(low) + " to " + core::show_number(high));
}

std::int64_t layer_ns(double us, std::uint32_t layers) {
  return std::llround(us * 1e3 / layers);
}

}  // namespace

void validate(const Workload& workload) {
  require("the number of layers", workload.layers, 1, 4096);
  require("the number of parameters of a layer", static_cast<double>(workload.params), 1, 1e9);
  require("the number of parameters of all layers", static_cast<double>(workload.total_params()), 1,
          1e9);
  require("the forward's time in ms", workload.forward_us * 1e-3, 0, 1e5);
  require("the backward's time in ms", workload.backward_us * 1e-3, 0, 1e5);
  require("the link's rate down in GB/s", workload.link_down_bytes_per_s * 1e-9, 1e-3, 1e5);
  require("the link's rate up in GB/s", workload.link_up_bytes_per_s * 1e-9, 1e-3, 1e5);
  require("the host's rate in Mparam/s", workload.host_params_per_s * 1e-6, 1e-3, 1e8);
  require("the number of nodes", workload.nodes, 1, 64);
  require("the device memory's rate in GB/s", workload.device_bytes_per_s * 1e-9, 1e-3, 1e6);
  require("the number of micro-batches", workload.micro_batches, 0, 1000);
  require("the number of steps", workload.steps, 1, 1000);
  if (workload.bucket_bytes == 0) return;
  require("the size of a bucket in bytes", static_cast<double>(workload.bucket_bytes), 8192, 4e9);
}

std::int64_t layer_forward_ns(const Workload& workload) {
  return layer_ns(workload.forward_us, workload.layers);
}

std::int64_t layer_backward_ns(const Workload& workload) {
  return layer_ns(workload.backward_us, workload.layers);
}

std::uint64_t bucket_bytes_of(const Workload& workload) {
  constexpr std::uint64_t kLeast = 8192;  // Config::bucket_bytes
  if (workload.bucket_bytes != 0) return workload.bucket_bytes;
  return std::max(kLeast, core::round_up(workload.params, plan::kBorderElems) * kElementBytes);
}

StepCost cost_of(const Workload& workload) {
  StepCost cost;
  const LayerCost layer{workload.params, static_cast<double>(layer_forward_ns(workload)),
                        static_cast<double>(layer_backward_ns(workload))};
  cost.layers.assign(workload.layers, layer);
  cost.bucket_elems = bucket_bytes_of(workload) / kElementBytes;
  cost.update_ns_per_elem.assign(workload.nodes, 1e9 * workload.nodes / workload.host_params_per_s);
  cost.down_ns_per_elem = 1e9 * kElementBytes / workload.link_down_bytes_per_s;
  cost.up_ns_per_elem = 1e9 * kElementBytes / workload.link_up_bytes_per_s;
  return cost;
}

PlannedModel planned_model(const Workload& workload) {
  PlannedModel model;
  model.parameters.assign(workload.layers, {workload.params, DType::f16});
  const double forward_us = static_cast<double>(layer_forward_ns(workload)) * 1e-3;
  const double backward_us = static_cast<double>(layer_backward_ns(workload)) * 1e-3;
  for (std::uint32_t i = 0; i < workload.layers; ++i) {
    model.forward.push_back({forward_us, i});
    model.backward.push_back({backward_us, workload.layers - 1 - i});
  }
  return model;
}

PlanningMachine planning_machine(const Workload& workload) {
  PlanningMachine machine;
  machine.link_down_bytes_per_s = workload.link_down_bytes_per_s;
  machine.link_up_bytes_per_s = workload.link_up_bytes_per_s;
  machine.node_elems_per_s.assign(workload.nodes, workload.host_params_per_s / workload.nodes);
  machine.device_elems_per_s = workload.device_bytes_per_s / kUpdateBytes;
  machine.norm_elems_per_s = workload.device_bytes_per_s / kNormBytes;
  machine.device_sums_per_s = workload.device_bytes_per_s / kSumBytes;
  return machine;
}

}  // namespace outboard::step_bench
