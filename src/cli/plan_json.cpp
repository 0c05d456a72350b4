// SPDX-License-Identifier: Apache-2.0
// A plan as JSON: bytes, microseconds, per-second rates.
#include <nlohmann/json.hpp>

#include "cli/plan_request.hpp"

namespace outboard::cli {
namespace {

using nlohmann::ordered_json;

ordered_json rate(const Rate& rate) {
  return {{"value", rate.value}, {"from", name_of(rate.known)}};
}

ordered_json bytes(const std::vector<Bytes>& entries) {
  ordered_json object = ordered_json::object();
  for (const Bytes& entry : entries) object[entry.purpose] = entry.bytes;
  object["total"] = sum_of(entries);
  return object;
}

ordered_json step(const JudgedStep& s) {
  return {{"step_us", s.step_us},
          {"forward_us", s.forward_us},
          {"backward_us", s.backward_us},
          {"exposed_us",
           {{"gradients", s.exposed_gradients_us},
            {"gate", s.exposed_gate_us},
            {"update", s.exposed_update_us},
            {"weights", s.exposed_weights_us},
            {"device", s.exposed_device_us}}},
          {"busy_us",
           {{"link_down", s.link_down_us},
            {"link_up", s.link_up_us},
            {"update", s.update_us},
            {"device", s.device_us}}},
          {"bytes_down", s.bytes_down},
          {"bytes_up", s.bytes_up},
          {"buckets", s.buckets},
          {"device_fraction", s.device_fraction},
          {"without_gate_us", s.without_gate_us},
          {"limited_by", limit_of(s)}};
}

ordered_json speed(const PlanReport& report) {
  ordered_json rows = ordered_json::array();
  for (const SpeedRow& row : report.speed) {
    rows.push_back({{"tokens", row.tokens},
                    {"step_us", row.step_us},
                    {"without_offload_us", row.without_offload_us},
                    {"fraction", row.fraction()}});
  }
  return rows;
}

ordered_json request(const PlanRequest& r) {
  return {{"dtype", dtype_name(r.dtype)},
          {"tokens", r.tokens},
          {"micro_batches", r.micro_batches},
          {"accumulate", has_sums(r) ? "host" : "trainer"},
          {"bucket_bytes", r.bucket_bytes},
          {"context", r.context},
          {"device_bytes", r.device_bytes},
          {"host_bytes", r.host_bytes},
          {"nodes", r.nodes},
          {"schedule", name_of(r.schedule)},
          {"device_fraction", r.device_fraction},
          {"link_bytes_per_s", rate(r.link)},
          {"host_update_params_per_s", rate(r.host_update)},
          {"compute_flop_per_s", rate(r.compute)},
          {"device_memory_bytes_per_s", rate(r.device_memory)},
          {"disk_bytes_per_s", rate(r.disk)},
          {"snapshot_bytes", r.snapshot_bytes}};
}

}  // namespace

std::string plan_json(const PlanReport& report) {
  const MemoryPlan& memory = report.memory;
  ordered_json out = {{"model", report.request.shape.name},
                      {"parameters", report.parameters},
                      {"request", request(report.request)},
                      {"device", bytes(memory.device)},
                      {"device_without_offload", memory.without_offload},
                      {"host_pinned", bytes(memory.pinned)},
                      {"host_pageable", bytes(memory.pageable)},
                      {"checkpoint", memory.checkpoint},
                      {"save",
                       {{"save_us", report.save.save_us},
                        {"copied_bytes", report.save.copied_bytes},
                        {"copy_us", report.save.copy_us},
                        {"wait_us", report.save.wait_us}}},
                      {"host_step", step(report.host)},
                      {"asked_step", step(report.asked)},
                      {"best_step", step(report.best)},
                      {"device_bytes_for_state", report.free_bytes},
                      {"without_offload_us", report.without_offload_us},
                      {"speed", speed(report)},
                      {"tokens_to_hide", nullptr},
                      {"largest_parameters", report.largest},
                      {"largest_limit", report.largest_limit},
                      {"largest_parameters_without_offload", report.largest_without_offload}};
  if (report.tokens_to_hide) out["tokens_to_hide"] = *report.tokens_to_hide;
  return out.dump(2) + "\n";
}

}  // namespace outboard::cli
