// SPDX-License-Identifier: Apache-2.0
#include "topology/memory_limit.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "topology/cgroup_tree.hpp"
#include "topology/node_memory.hpp"
#include "topology/system_files.hpp"

namespace outboard::topology {
namespace {

/// No machine has that much; v1 writes nearly 2^63 for "no limit".
constexpr std::uint64_t kNoLimit = std::uint64_t{1} << 60;

void keep_tighter(MemoryLimit& tightest, const MemoryLimit& found) {
  if (!tightest.known() || found.left_bytes() < tightest.left_bytes()) tightest = found;
}

MemoryLimit of_machine(const std::string& root) {
  const std::string path = root + "/proc/meminfo";
  const auto total = entry_number(path, "MemTotal:");
  const auto available = entry_number(path, "MemAvailable:");
  if (!total || !available) return {};
  const std::uint64_t free = std::min(*available, *total);
  return {*total << 10, (*total - free) << 10, path, "use a machine with more memory"};
}

std::optional<NodeMemory> memory_of(const std::string& root, const std::string& name) {
  const std::string_view digits = std::string_view(name).substr(4);
  const auto number = parse_cpu_list(digits);
  if (!number || number->size() != 1) return std::nullopt;
  return read_node_memory(root, number->front());
}

/// /proc/meminfo knows nothing of the nodes that a cpuset allows this process, beyond which it is
/// ended although others have memory.
MemoryLimit of_allowed_nodes(const std::string& root) {
  const std::string status = root + "/proc/self/status";
  const std::string key = "Mems_allowed_list:";
  const auto list = entry_text(status, key);
  const auto allowed = list ? parse_cpu_list(*list) : std::nullopt;
  if (!allowed) return {};
  MemoryLimit limit;
  bool all = true;
  for (const std::string& name : names_in(root + "/sys/devices/system/node", "node")) {
    const auto memory = memory_of(root, name);
    if (!memory || memory->total_bytes == 0) continue;
    const bool mine = std::ranges::any_of(
        *allowed, [&](std::uint32_t number) { return name == "node" + std::to_string(number); });
    all = all && mine;
    if (!mine) continue;
    const std::uint64_t most = memory->free_bytes + memory->file_bytes + memory->slab_bytes;
    const std::uint64_t left =
        std::min(most - std::min(most, memory->kept_bytes), memory->total_bytes);
    limit.limit_bytes += memory->total_bytes;
    limit.used_bytes += memory->total_bytes - left;
  }
  if (all) return {};
  limit.source = status + ", " + key + " " + *list;
  limit.remedy = "allow memory of more NUMA nodes (--cpuset-mems, cpuset.mems)";
  return limit;
}

struct Files {
  const char *limit, *used;
  std::array<const char*, 3> given_up;  ///< entries of memory.stat: what goes at need
};
constexpr Files kV1{"/memory.limit_in_bytes",
                    "/memory.usage_in_bytes",
                    {"total_inactive_file ", "total_active_file ", nullptr}};
constexpr Files kV2{
    "/memory.max", "/memory.current", {"inactive_file ", "active_file ", "slab_reclaimable "}};

void read_group(MemoryLimit& tightest, const std::string& group, const Files& files) {
  const auto limit = first_number(group + files.limit);  // v2: none for "max"
  const auto used = first_number(group + files.used);
  if (!limit || *limit == 0 || *limit >= kNoLimit || !used) return;
  std::uint64_t given_up = 0;
  for (const char* name : files.given_up) {
    if (name != nullptr) given_up += entry_number(group + "/memory.stat", name).value_or(0);
  }
  keep_tighter(tightest, {*limit, *used - std::min(*used, given_up), group + files.limit,
                          "raise the limit (container memory)"});
}

}  // namespace

MemoryLimit read_memory_limit(const std::string& root) {
  MemoryLimit tightest = of_machine(root);
  const MemoryLimit nodes = of_allowed_nodes(root);
  if (nodes.known()) keep_tighter(tightest, nodes);
  visit_groups(root, "memory", [&](CgroupVersion version, const std::string& group) {
    read_group(tightest, group, version == CgroupVersion::v2 ? kV2 : kV1);
  });
  return tightest;
}

}  // namespace outboard::topology
