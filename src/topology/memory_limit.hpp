// SPDX-License-Identifier: Apache-2.0
/// How much host memory this process may still take before the kernel ends somebody.
#pragma once

#include <cstdint>
#include <string>

namespace outboard::topology {

struct MemoryLimit {
  std::uint64_t limit_bytes = 0;  ///< of machine, allowed nodes or a control group; 0: unknown
  std::uint64_t used_bytes = 0;   ///< of it, without what the kernel gives up at need: files' pages
  std::string source;             ///< the file that says so
  std::string remedy{};           ///< what raises it, for the end of a sentence

  [[nodiscard]] bool known() const noexcept { return limit_bytes > 0; }
  [[nodiscard]] std::uint64_t left_bytes() const noexcept {
    return used_bytes < limit_bytes ? limit_bytes - used_bytes : 0;
  }
};

/// Where the least is left: the machine (/proc/meminfo); its NUMA nodes that this process may take
/// memory of, if there are others (a cpuset); or this process's control group or one of its parents
/// (cgroup v2 `memory.max`, v1 `memory.limit_in_bytes`). Below `root` ("" is the running system).
/// Files that are missing or strange limit nothing. Never throws for what it reads.
[[nodiscard]] MemoryLimit read_memory_limit(const std::string& root);

}  // namespace outboard::topology
