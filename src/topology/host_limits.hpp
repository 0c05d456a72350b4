// SPDX-License-Identifier: Apache-2.0
/// What the system lets this process have besides cores and memory, as files in /proc and /sys say.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace outboard::topology {

/// Huge pages set aside on one node.
struct ReservedPages {
  std::uint32_t os_index = 0;  ///< of the node
  std::uint64_t page_kib = 0;
  std::uint64_t total = 0;
  std::uint64_t free = 0;
};

struct HostLimits {
  std::string processor;                      ///< "" if unknown
  std::string kernel;                         ///< its release; "" if unknown
  std::optional<std::uint64_t> lock_bytes;    ///< soft limit of locked memory; UINT64_MAX: none
  bool may_lock_more = false;                 ///< may_lock_all(): the limit does not count
  std::string transparent_huge_pages;         ///< always, madvise or never; "" if unknown
  std::vector<ReservedPages> reserved_pages;  ///< sizes and nodes that have any
  std::string container;                      ///< docker, podman, kubernetes, lxc; "" for none seen
  bool wsl = false;                           ///< Linux under Windows
};

/// What raises RLIMIT_MEMLOCK.
inline constexpr const char* kLockRemedy =
    "ulimit -l unlimited; in a container --ulimit memlock=-1; in a service unit "
    "LimitMEMLOCK=infinity";

/// Whether RLIMIT_MEMLOCK does not count for this process: it has CAP_IPC_LOCK, and not of a user
/// namespace (rootless containers), for which the kernel does not ask. Below `root`.
[[nodiscard]] bool may_lock_all(const std::string& root);

/// Below `root` ("" is the running system). Never throws for what it reads.
[[nodiscard]] HostLimits read_host_limits(const std::string& root);

}  // namespace outboard::topology
