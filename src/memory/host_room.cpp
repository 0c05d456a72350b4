// SPDX-License-Identifier: Apache-2.0
#include "memory/host_room.hpp"

#include "outboard/error.hpp"

namespace outboard::memory {
namespace {

std::string what_there_is(const topology::MemoryLimit& limit) {
  return std::to_string(limit.left_bytes()) + " are left of " + std::to_string(limit.limit_bytes) +
         " (" + limit.source + "; used " + std::to_string(limit.used_bytes) + ")";
}

std::string what_is_needed(const HostNeed& need) {
  return "host memory: " + std::to_string(need.bytes()) + " bytes are needed (state " +
         std::to_string(need.state_bytes) + ", staging " + std::to_string(need.staging_bytes) +
         (need.reserved_bytes > 0
              ? ", less " + std::to_string(need.reserved_bytes) + " in reserved huge pages"
              : "") +
         ") and ";
}

}  // namespace

std::string check_host_room(const HostNeed& need, const topology::MemoryLimit& limit) {
  if (!limit.known()) return "";
  const std::uint64_t left = limit.left_bytes();
  if (need.bytes() > left) {
    throw Error(ErrorCode::out_of_memory,
                what_is_needed(need) + what_there_is(limit) + ": " +
                    std::to_string(need.bytes() - left) +
                    " bytes short; use a smaller model, keep a share of the state on the device "
                    "(Placement::fraction), or " +
                    (limit.remedy.empty() ? "raise the limit" : limit.remedy));
  }
  const bool much = need.bytes() >= limit.limit_bytes / 100;
  if (!much || left - need.bytes() >= limit.limit_bytes / 10) return "";
  return what_is_needed(need) + what_there_is(limit) + ": " + std::to_string(left - need.bytes()) +
         " will be left, less than a tenth; whatever else grows may have the process ended";
}

std::string check_host_room(const HostNeed& need) {
  return check_host_room(need, topology::read_memory_limit(""));
}

}  // namespace outboard::memory
