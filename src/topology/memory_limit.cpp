// SPDX-License-Identifier: Apache-2.0
#include "topology/memory_limit.hpp"

#include <algorithm>
#include <array>
#include <fstream>
#include <optional>
#include <sstream>

#include "topology/cgroup_tree.hpp"

namespace outboard::topology {
namespace {

/// No machine has that much; v1 writes nearly 2^63 for "no limit".
constexpr std::uint64_t kNoLimit = std::uint64_t{1} << 60;

std::optional<std::uint64_t> number(const std::string& path) {
  const auto line = first_line(path);
  std::uint64_t value = 0;
  if (!line || line->starts_with('-') || !(std::istringstream(*line) >> value)) return std::nullopt;
  return value;
}

/// The number behind `key` at the start of a line.
std::optional<std::uint64_t> entry(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    std::uint64_t value = 0;
    if (words >> name && name == key && words >> value) return value;
  }
  return std::nullopt;
}

void keep_tighter(MemoryLimit& tightest, const MemoryLimit& found) {
  if (!tightest.known() || found.left_bytes() < tightest.left_bytes()) tightest = found;
}

MemoryLimit of_machine(const std::string& root) {
  const std::string path = root + "/proc/meminfo";
  const auto total = entry(path, "MemTotal:");
  const auto available = entry(path, "MemAvailable:");
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
  const auto limit = number(group + files.limit);  // v2: none for "max"
  const auto used = number(group + files.used);
  if (!limit || *limit == 0 || *limit >= kNoLimit || !used) return;
  std::uint64_t file_pages = 0;
  for (const char* name : files.file_pages) {
    file_pages += entry(group + "/memory.stat", name).value_or(0);
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
