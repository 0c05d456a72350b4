// SPDX-License-Identifier: Apache-2.0
// Measured steps as JSON: microseconds, bytes, per-second rates.
#include <nlohmann/json.hpp>

#include "cli/bench_step.hpp"
#include "cli/report.hpp"
#include "outboard/version.hpp"

namespace outboard::cli {
namespace {

using nlohmann::ordered_json;
using step_bench::Clock;
using step_bench::StepBench;
using step_bench::WayResult;
using step_bench::Workload;

ordered_json model(const StepBench& bench) {
  const Workload& w = bench.workload;
  return {{"layers", w.layers},
          {"params_per_layer", w.params},
          {"dtype", "f16"},
          {"buckets", bench.bound.buckets},
          {"forward_us", bench.bound.forward_ns * 1e-3},
          {"backward_us", bench.bound.backward_ns * 1e-3}};
}

ordered_json machine(const Workload& w) {
  return {{"link_down_bytes_per_s", w.link_down_bytes_per_s},
          {"link_up_bytes_per_s", w.link_up_bytes_per_s},
          {"host_params_per_s", w.host_params_per_s},
          {"nodes", w.nodes},
          {"device_bytes_per_s", w.device_bytes_per_s}};
}

ordered_json predicted(const PlannedStep& step) {
  return {{"step_us", step.step_us},
          {"exposed_us",
           {{"gradients", step.exposed_gradients_us},
            {"gate", step.exposed_gate_us},
            {"update", step.exposed_update_us},
            {"weights", step.exposed_weights_us},
            {"device", step.exposed_device_us}}}};
}

ordered_json way(const WayResult& r) {
  const step_bench::Exposed& e = r.mean.exposed;
  return {{"way", r.way->name},
          {"clock", r.clock == Clock::real ? "real" : "virtual"},
          {"step_us",
           {{"mean", r.mean.step},
            {"min", r.shortest_us()},
            {"max", r.longest_us()},
            {"values", r.steps_us}}},
          {"forward_us", r.mean.forward},
          {"backward_us", r.mean.backward},
          {"bound_us", r.bound_us},
          {"ratio", r.ratio()},
          {"hidden", r.overlap()},
          {"exposed_us",
           {{"gradients", e.gradients},
            {"gate", e.gate},
            {"update", e.update},
            {"weights", e.weights},
            {"device", e.device},
            {"host", e.host},
            {"total", e.total()}}},
          {"busy_us",
           {{"link_down", r.mean.down},
            {"link_up", r.mean.up},
            {"update", r.mean.update},
            {"device", r.mean.device}}},
          {"bytes_down", r.mean.bytes_down},
          {"bytes_up", r.mean.bytes_up},
          {"predicted", predicted(r.predicted)},
          {"prediction_error", r.prediction_error()},
          {"digest", print("%016llx", static_cast<unsigned long long>(r.digest))}};
}

}  // namespace

std::string step_json(const StepBench& bench, const std::string& command) {
  ordered_json ways = ordered_json::array();
  for (const WayResult& result : bench.results) ways.push_back(way(result));
  const ordered_json out = {{"version", kVersion},           {"command", command},
                            {"model", model(bench)},         {"machine", machine(bench.workload)},
                            {"seed", bench.workload.seed},   {"ways", std::move(ways)},
                            {"same_bits", bench.same_bits()}};
  return out.dump(2) + "\n";
}

}  // namespace outboard::cli
