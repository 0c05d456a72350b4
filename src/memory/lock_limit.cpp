// SPDX-License-Identifier: Apache-2.0
#include "memory/lock_limit.hpp"

#include <sys/resource.h>

#include <cstdlib>
#include <fstream>

namespace outboard::memory {
namespace {

constexpr unsigned kCapIpcLock = 14;

bool may_lock_all() {
  std::ifstream status("/proc/self/status");
  const std::string key = "CapEff:";
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with(key)) continue;
    return (std::strtoull(line.c_str() + key.size(), nullptr, 16) >> kCapIpcLock & 1U) != 0;
  }
  return false;
}

}  // namespace

std::optional<std::uint64_t> read_lock_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return {};
  if (may_lock_all()) return {};
  return limit.rlim_cur;
}

std::string how_to_lock_more(std::optional<std::uint64_t> limit) {
  if (!limit) return "";
  return "the limit on locked memory is " + std::to_string(*limit) +
         " bytes (RLIMIT_MEMLOCK): raise it with `ulimit -l unlimited`, for a container with "
         "`--ulimit memlock=-1`, for a service with LimitMEMLOCK=infinity in its unit";
}

}  // namespace outboard::memory
