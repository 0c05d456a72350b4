// SPDX-License-Identifier: Apache-2.0
// A machine as JSON: bytes, OS numbers of cpus; null for what is unknown.
#include <limits>
#include <nlohmann/json.hpp>

#include "cli/topo.hpp"
#include "outboard/version.hpp"

namespace outboard::cli {
namespace {

using inspect::HostReport;
using nlohmann::ordered_json;

template <class Value>
ordered_json or_null(const std::optional<Value>& value) {
  return value ? ordered_json(*value) : ordered_json(nullptr);
}

ordered_json or_null(const std::string& text) {
  return text.empty() ? ordered_json(nullptr) : ordered_json(text);
}

ordered_json or_null(std::uint64_t number) {
  return number == 0 ? ordered_json(nullptr) : ordered_json(number);
}

ordered_json nodes(const HostReport& report) {
  ordered_json rows = ordered_json::array();
  for (std::size_t i = 0; i < report.machine.nodes.size(); ++i) {
    const topology::Node& node = report.machine.nodes[i];
    rows.push_back({{"node", i},
                    {"numa_node", node.os_index},
                    {"cores", node.cores},
                    {"cpus", node.cpus},
                    {"memory_bytes", or_null(node.memory_bytes)},
                    {"threads", report.threads.threads_per_node[i]},
                    {"share", report.shares[i]}});
  }
  return rows;
}

ordered_json memory_nodes(const HostReport& report) {
  ordered_json rows = ordered_json::array();
  for (const topology::MemoryNode& memory : report.machine.memory_nodes) {
    rows.push_back({{"numa_node", memory.os_index},
                    {"memory_bytes", memory.memory_bytes},
                    {"nearest", memory.nearest}});
  }
  return rows;
}

ordered_json gpus(const HostReport& report) {
  ordered_json rows = ordered_json::array();
  for (const topology::Gpu& gpu : report.gpus) {
    rows.push_back({{"index", rows.size()},
                    {"pci_address", gpu.pci_address},
                    {"node", or_null(gpu.node)},
                    {"node_note", gpu.node_note},
                    {"model", or_null(gpu.model)},
                    {"uuid", or_null(gpu.uuid)},
                    {"link",
                     {{"lanes", or_null(std::uint64_t{gpu.link.lanes})},
                      {"most_lanes", or_null(std::uint64_t{gpu.link.most_lanes})},
                      {"gt_per_s", gpu.link.gt_per_s},
                      {"most_gt_per_s", gpu.link.most_gt_per_s},
                      {"bytes_per_s", gpu.link.bytes_per_s()}}}});
  }
  return rows;
}

ordered_json visible(const HostReport& report) {
  ordered_json rows = ordered_json::array();
  for (const topology::VisibleGpu& gpu : report.visible.gpus) {
    rows.push_back(
        {{"index", rows.size()}, {"pci_address", gpu.pci_address}, {"node", or_null(gpu.node)}});
  }
  return {{"variable", or_null(report.visible_devices)},
          {"gpus", rows},
          {"note", or_null(report.visible.note)}};
}

ordered_json refusal(const std::optional<topology::BindingRefusal>& refused) {
  if (!refused) return {{"permitted", true}};
  return {{"permitted", false},
          {"call", refused->call},
          {"errno", refused->error},
          {"remedy", refused->remedy()}};
}

ordered_json limits(const HostReport& report) {
  ordered_json pages = ordered_json::array();
  for (const topology::ReservedPages& reserved : report.limits.reserved_pages) {
    pages.push_back({{"numa_node", reserved.os_index},
                     {"page_bytes", reserved.page_kib << 10},
                     {"total", reserved.total},
                     {"free", reserved.free}});
  }
  const auto& lock = report.limits.lock_bytes;
  const bool unlimited = lock == std::numeric_limits<std::uint64_t>::max();
  return {{"memory",
           {{"limit_bytes", or_null(report.memory.limit_bytes)},
            {"left_bytes", report.memory.left_bytes()},
            {"source", or_null(report.memory.source)}}},
          {"cpu_quota",
           {{"cores", or_null(std::uint64_t{report.machine.quota_cores})},
            {"source", or_null(report.machine.quota_source)}}},
          {"memory_lock",
           {{"unlimited", unlimited || report.limits.may_lock_more},
            {"bytes", unlimited ? ordered_json(nullptr) : or_null(lock)}}},
          {"huge_pages",
           {{"transparent", or_null(report.limits.transparent_huge_pages)}, {"reserved", pages}}}};
}

void add_live(ordered_json& out, const HostReport& report) {
  if (report.binding) {
    out["memory_binding"] = refusal(report.binding->memory);
    out["thread_binding"] = refusal(report.binding->threads);
  }
  if (report.kernels) {
    out["kernels"] = {{"target", report.kernels->target}, {"supported", report.kernels->supported}};
  }
  if (report.driver) {
    const topology::DriverReport& driver = report.driver->report;
    out["driver"] = {{"state", topology::name_of(driver.state)},
                     {"found", driver.found},
                     {"remedy", or_null(driver.remedy)}};
  }
}

}  // namespace

std::string topo_json(const HostReport& report) {
  const topology::Machine& machine = report.machine;
  ordered_json out = {{"version", kVersion},
                      {"notes", machine.notes},
                      {"processor", or_null(report.limits.processor)},
                      {"kernel", or_null(report.limits.kernel)},
                      {"container", or_null(report.limits.container)},
                      {"numa_known", machine.numa_known},
                      {"nodes", nodes(report)},
                      {"memory_nodes", memory_nodes(report)},
                      {"distances", machine.distances},
                      {"threads_why", report.threads.why},
                      {"shares_by", "threads"},
                      {"bucket_nodes", report.bucket_nodes}};
  if (!report.question.described()) out["limits"] = limits(report);
  if (report.question.synthetic.empty()) out["gpus"] = gpus(report);
  if (!report.question.described()) out["visible"] = visible(report);
  add_live(out, report);
  return out.dump(2) + "\n";
}

}  // namespace outboard::cli
