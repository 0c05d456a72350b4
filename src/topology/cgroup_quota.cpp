// SPDX-License-Identifier: Apache-2.0
#include "topology/cgroup_quota.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string_view>

namespace outboard::topology {
namespace {

struct Finding {
  double cores = std::numeric_limits<double>::infinity();
  std::string source;
};

std::optional<std::string> first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!file || !std::getline(file, line)) return std::nullopt;
  return line;
}

void keep_smaller(Finding& finding, double quota_us, double period_us, const std::string& source) {
  if (!(quota_us > 0) || !(period_us > 0) || quota_us / period_us >= finding.cores) return;
  finding = {quota_us / period_us, source};
}

void read_v2(Finding& finding, const std::string& group) {
  const std::string path = group + "/cpu.max";
  const auto line = first_line(path);
  if (!line) return;
  std::istringstream words(*line);
  double quota_us = 0;  // stays 0 for "max"
  double period_us = 0;
  if (words >> quota_us >> period_us) {
    keep_smaller(finding, quota_us, period_us, path + " = " + *line);
  }
}

void read_v1(Finding& finding, const std::string& group) {
  const std::string path = group + "/cpu.cfs_quota_us";
  const auto quota = first_line(path);
  const auto period = first_line(group + "/cpu.cfs_period_us");
  if (!quota || !period) return;
  double quota_us = 0;  // -1 without a quota
  double period_us = 0;
  if (std::istringstream(*quota) >> quota_us && std::istringstream(*period) >> period_us) {
    keep_smaller(finding, quota_us, period_us, path + " = " + *quota + ", period " + *period);
  }
}

using Reader = void (*)(Finding&, const std::string& group);

/// Reads `group` ("/a/b", below `mount`) and its parents up to the mount's own top. In a container
/// the name of the group may be the host's; then only the top exists, and it is the group.
void read_upwards(Finding& finding, const std::string& mount, std::string group, Reader read) {
  while (!group.empty() && group.back() == '/') group.pop_back();
  if (group.find("/..") != std::string::npos) group.clear();
  while (!group.empty()) {
    read(finding, mount + group);
    group.resize(group.rfind('/') == std::string::npos ? 0 : group.rfind('/'));
  }
  read(finding, mount);
}

bool lists_cpu(std::string_view controllers) {
  const std::string padded = "," + std::string(controllers) + ",";
  return padded.find(",cpu,") != std::string::npos;
}

}  // namespace

CpuQuota read_quota(const std::string& root) {
  Finding finding;
  std::ifstream groups(root + "/proc/self/cgroup");
  const std::string mounts = root + "/sys/fs/cgroup";
  for (std::string line; std::getline(groups, line);) {  // "<id>:<controllers>:<group>"
    const auto first = line.find(':');
    const auto second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    if (controllers.empty()) {
      for (const char* mount : {"", "/unified"}) {
        read_upwards(finding, mounts + mount, group, read_v2);
      }
    } else if (lists_cpu(controllers)) {
      for (const char* mount : {"/cpu", "/cpu,cpuacct", "/cpuacct,cpu"}) {
        read_upwards(finding, mounts + mount, group, read_v1);
      }
    }
  }
  if (std::isinf(finding.cores)) return {};
  const double cores = std::clamp(std::floor(finding.cores), 1.0, 1e9);
  return {static_cast<std::uint32_t>(cores), finding.source};
}

}  // namespace outboard::topology
