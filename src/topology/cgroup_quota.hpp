// SPDX-License-Identifier: Apache-2.0
/// How much CPU time the control groups of this process allow.
#pragma once

#include <cstdint>
#include <string>

namespace outboard::topology {

struct CpuQuota {
  std::uint32_t cores = 0;  ///< rounded down, at least 1; 0: no quota
  std::string source;       ///< the file that sets it and what it says; "" without a quota
};

/// The smallest quota of this process's group and all its parents: cgroup v2 `cpu.max` and v1
/// `cpu.cfs_quota_us`. Paths are looked up below `root` ("" is the running system). Files that are
/// missing or strange count as no quota. Never throws for what it reads.
[[nodiscard]] CpuQuota read_quota(const std::string& root);

}  // namespace outboard::topology
