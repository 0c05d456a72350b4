// SPDX-License-Identifier: Apache-2.0
#include "topology/memory_limit.hpp"

#include <algorithm>
#include <array>

#include "topology/cgroup_tree.hpp"
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
  return {*total << 10, (*total - free) << 10, path};
}

struct Files {
  const char *limit, *used;
  std::array<const char*, 2> file_pages;  ///< entries of memory.stat
};
constexpr Files kV1{"/memory.limit_in_bytes",
                    "/memory.usage_in_bytes",
                    {"total_inactive_file", "total_active_file"}};
constexpr Files kV2{"/memory.max", "/memory.current", {"inactive_file", "active_file"}};

void read_group(MemoryLimit& tightest, const std::string& group, const Files& files) {
  const auto limit = first_number(group + files.limit);  // v2: none for "max"
  const auto used = first_number(group + files.used);
  if (!limit || *limit == 0 || *limit >= kNoLimit || !used) return;
  std::uint64_t file_pages = 0;
  for (const char* name : files.file_pages) {
    file_pages += entry_number(group + "/memory.stat", std::string(name) + " ").value_or(0);
  }
  keep_tighter(tightest, {*limit, *used - std::min(*used, file_pages), group + files.limit});
}

}  // namespace

MemoryLimit read_memory_limit(const std::string& root) {
  MemoryLimit tightest = of_machine(root);
  visit_groups(root, "memory", [&](CgroupVersion version, const std::string& group) {
    read_group(tightest, group, version == CgroupVersion::v2 ? kV2 : kV1);
  });
  return tightest;
}

}  // namespace outboard::topology
