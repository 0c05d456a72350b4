// SPDX-License-Identifier: Apache-2.0
#include "memory/lock_limit.hpp"

#include <sys/resource.h>

#include "topology/host_limits.hpp"
#include "topology/system_files.hpp"

namespace outboard::memory {
namespace {

std::uint64_t locked_kib() {
  return topology::entry_number("/proc/self/status", "VmLck:").value_or(0);
}

}  // namespace

std::optional<std::uint64_t> read_lock_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return {};
  if (topology::may_lock_all("")) return {};
  return limit.rlim_cur;
}

LockUse read_lock_use() {
  return {read_lock_limit(), locked_kib() << 10};
}

std::string why_refused(const LockUse& use, std::uint64_t bytes) {
  if (!use.limit || use.locked_bytes + bytes <= *use.limit) return "the limit is the device's own";
  return "the limit on locked memory is " + std::to_string(*use.limit) +
         " bytes (RLIMIT_MEMLOCK); to raise it: " + topology::kLockRemedy;
}

}  // namespace outboard::memory
