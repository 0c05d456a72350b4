// SPDX-License-Identifier: Apache-2.0
#include "topology/cgroup_quota.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>

#include "topology/cgroup_tree.hpp"
#include "topology/system_files.hpp"

namespace outboard::topology {
namespace {

struct Finding {
  double cores = std::numeric_limits<double>::infinity();
  std::string source;
};

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

}  // namespace

CpuQuota read_quota(const std::string& root) {
  Finding finding;
  visit_groups(root, "cpu", [&](CgroupVersion version, const std::string& group) {
    version == CgroupVersion::v2 ? read_v2(finding, group) : read_v1(finding, group);
  });
  if (std::isinf(finding.cores)) return {};
  const double cores = std::clamp(std::floor(finding.cores), 1.0, 1e9);
  return {static_cast<std::uint32_t>(cores), finding.source};
}

}  // namespace outboard::topology
