// SPDX-License-Identifier: Apache-2.0
/// How much host memory this process may still take before the kernel ends somebody.
#pragma once

#include <cstdint>
#include <string>

namespace outboard::topology {

struct MemoryLimit {
  std::uint64_t limit_bytes = 0;  ///< of the machine, or of a control group; 0: unknown
  std::uint64_t used_bytes = 0;   ///< of it, without file pages that the kernel gives up at need
  std::string source;             ///< the file that says so

  [[nodiscard]] bool known() const noexcept { return limit_bytes > 0; }
  [[nodiscard]] std::uint64_t left_bytes() const noexcept {
    return used_bytes < limit_bytes ? limit_bytes - used_bytes : 0;
  }
};

/// Where the least is left: the machine (/proc/meminfo), or this process's control group or one of
/// its parents (cgroup v2 `memory.max`, v1 `memory.limit_in_bytes`). Below `root` ("" is the
/// running system). Files that are missing or strange limit nothing. Never throws for what it
/// reads.
[[nodiscard]] MemoryLimit read_memory_limit(const std::string& root);

}  // namespace outboard::topology
