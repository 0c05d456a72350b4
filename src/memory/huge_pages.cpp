// SPDX-License-Identifier: Apache-2.0
#include "memory/huge_pages.hpp"

#include <algorithm>
#include <array>
#include <fstream>

#include "topology/cgroup_tree.hpp"
#include "topology/system_files.hpp"

namespace outboard::memory {
namespace {

constexpr const char* kOfTwoMebibytes = "/hugepages/hugepages-2048kB/";

std::uint64_t number_in(const std::string& path) {
  return topology::first_number(path).value_or(0);
}

struct GroupFiles {
  const char *limit, *used;
};

/// What a group, and every parent, leaves of its limits: on pages that are promised (rsvd) and on
/// those that are there.
std::uint64_t group_pages(const std::string& root) {
  using topology::CgroupVersion;
  constexpr std::array<GroupFiles, 2> kV1 = {
      {{"limit_in_bytes", "usage_in_bytes"}, {"rsvd.limit_in_bytes", "rsvd.usage_in_bytes"}}};
  constexpr std::array<GroupFiles, 2> kV2 = {{{"max", "current"}, {"rsvd.max", "rsvd.current"}}};
  std::uint64_t left = UINT64_MAX;
  topology::visit_groups(root, "hugetlb", [&](CgroupVersion version, const std::string& folder) {
    for (const GroupFiles& files : version == CgroupVersion::v2 ? kV2 : kV1) {
      const std::string prefix = folder + "/hugetlb.2MB.";
      const auto limit = topology::first_number(prefix + files.limit);  // v2: none for "max"
      if (!limit) continue;
      const std::uint64_t used = topology::first_number(prefix + files.used).value_or(0);
      left = std::min(left, *limit - std::min(*limit, used));
    }
  });
  return left / kHugePage;
}

std::size_t bytes_of(std::uint64_t pages) {
  return std::min<std::uint64_t>(pages, SIZE_MAX / kHugePage) * kHugePage;
}

}  // namespace

std::size_t reserved_huge_bytes(const std::string& root, std::optional<std::uint32_t> os_node) {
  const std::string machine = root + "/sys/kernel/mm" + kOfTwoMebibytes;
  // Promises are not made for a node, so all of them may be kept on this one.
  const std::uint64_t promised = number_in(machine + "resv_hugepages");
  std::uint64_t pages = number_in(machine + "free_hugepages");
  if (os_node) {
    const std::string node = root + "/sys/devices/system/node/node" + std::to_string(*os_node);
    pages = std::min(pages, number_in(node + kOfTwoMebibytes + "free_hugepages"));
  }
  if (pages <= promised) return 0;
  return bytes_of(std::min(pages - promised, group_pages(root)));
}

bool transparent_huge_pages(const std::string& root) {
  std::ifstream file(root + "/sys/kernel/mm/transparent_hugepage/enabled");
  std::string line;
  std::getline(file, line);
  return line.find("[always]") != std::string::npos || line.find("[madvise]") != std::string::npos;
}

}  // namespace outboard::memory
