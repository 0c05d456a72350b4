// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "cli/report.hpp"
#include "outboard/version.hpp"

namespace outboard::cli {
namespace {

using nlohmann::ordered_json;
using update_bench::Measurement;
using update_bench::name_of;
using update_bench::ratios;
using update_bench::Summary;

ordered_json json_summary(const std::vector<double>& values) {
  const Summary summary = update_bench::summarize(values);
  return {{"median", summary.median},
          {"lower_quartile", summary.low},
          {"upper_quartile", summary.high},
          {"min", summary.min},
          {"max", summary.max},
          {"values", values}};
}

std::string hex(std::uint64_t digest) {
  return print("%016llx", static_cast<unsigned long long>(digest));
}

ordered_json json_workload(const Measurement& m) {
  const update_bench::Workload& w = m.workload;
  return {{"params", m.params},
          {"tensors", w.tensors == 0 ? 1 : w.tensors},
          {"rule", name_of(w.rule)},
          {"dtype", name_of(w.grad)},
          {"weight_dtype", name_of(w.weight)},
          {"rounding", w.stochastic ? "stochastic" : "nearest"},
          {"alias", w.alias},
          {"repeats", w.repeats},
          {"steps_per_repeat", m.passes},
          {"bytes_per_param", m.bytes_per_param}};
}

ordered_json json_measurement(const Measurement& m) {
  ordered_json json = json_workload(m);
  json["ns_per_param"] = json_summary(m.update);
  json["gb_per_s"] = m.bytes_per_param / update_bench::summarize(m.update).median;
  json["roof_ns_per_param"] = json_summary(m.roof);
  json["roof_gb_per_s"] = update_bench::kRoofBytes / update_bench::summarize(m.roof).median;
  json["share_of_roof"] = json_summary(m.share_of_roof());
  json["triad_gb_per_s"] = update_bench::kTriadBytes / update_bench::summarize(m.triad).median;
  if (!m.one_tensor.empty()) {
    json["one_tensor_ns_per_param"] = json_summary(m.one_tensor);
    json["time_over_one_tensor"] = json_summary(ratios(m.update, m.one_tensor));
  }
  if (!m.subnormal.empty()) {
    json["normal_ns_per_param"] = json_summary(m.normal);
    json["subnormal_ns_per_param"] = json_summary(m.subnormal);
    json["time_on_subnormal_over_normal"] = json_summary(ratios(m.subnormal, m.normal));
  }
  json["pages"] = {{"known", m.pages.known},
                   {"resident_bytes", m.pages.resident_bytes},
                   {"huge_bytes", m.pages.huge_bytes}};
  json["check"] = {{"equal", m.check.equal},
                   {"elements", m.check.elems},
                   {"target", m.check.target},
                   {"digest", hex(m.check.digest)},
                   {"expected", hex(m.check.expected)}};
  json["load_average"] = {m.load_before, m.load_after};
  json["notes"] = m.notes;
  return json;
}

}  // namespace

std::string json_of(const Report& report) {
  ordered_json json = {{"outboard", kVersion}, {"command", report.command}};
  json["machine"] = {{"processor", report.machine.processor},
                     {"isa", report.machine.isa},
                     {"nodes", report.machine.threads_per_node.size()},
                     {"threads_per_node", report.machine.threads_per_node},
                     {"threads_why", report.machine.threads_why},
                     {"notes", report.machine.notes}};
  json["measurements"] = ordered_json::array();
  for (const Measurement& m : report.measurements) {
    json["measurements"].push_back(json_measurement(m));
  }
  return json.dump(1) + "\n";
}

}  // namespace outboard::cli
