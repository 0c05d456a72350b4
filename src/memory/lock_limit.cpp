// SPDX-License-Identifier: Apache-2.0
#include "memory/lock_limit.hpp"

#include <sys/resource.h>

#include <cstdlib>
#include <fstream>

namespace outboard::memory {
namespace {

constexpr unsigned kCapIpcLock = 14;

/// What /proc/self/status says behind `key`, in this base; 0 without it.
std::uint64_t own_status(const std::string& key, int base) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(key)) return std::strtoull(line.c_str() + key.size(), nullptr, base);
  }
  return 0;
}

bool may_lock_all() {
  return (own_status("CapEff:", 16) >> kCapIpcLock & 1U) != 0;
}

}  // namespace

std::optional<std::uint64_t> read_lock_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return {};
  if (may_lock_all()) return {};
  return limit.rlim_cur;
}

LockUse read_lock_use() {
  return {read_lock_limit(), own_status("VmLck:", 10) << 10};
}

std::string why_refused(const LockUse& use, std::uint64_t bytes) {
  if (!use.limit || use.locked_bytes + bytes <= *use.limit) return "the limit is the device's own";
  return "the limit on locked memory is " + std::to_string(*use.limit) +
         " bytes (RLIMIT_MEMLOCK): raise it with `ulimit -l unlimited`, for a container with "
         "`--ulimit memlock=-1`, for a service with LimitMEMLOCK=infinity in its unit";
}

}  // namespace outboard::memory
