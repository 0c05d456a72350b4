// SPDX-License-Identifier: Apache-2.0
/// Whether host memory will do, asked before any of it is mapped: a mapping succeeds whatever its
/// size, and the kernel ends the process when the pages are touched.
#pragma once

#include <cstdint>
#include <string>

#include "topology/memory_limit.hpp"

namespace outboard::memory {

/// Bytes that are about to be mapped, pages rounded up or not.
struct HostNeed {
  std::uint64_t state_bytes = 0;     ///< with sums of gradients
  std::uint64_t staging_bytes = 0;   ///< pinned or not
  std::uint64_t reserved_bytes = 0;  ///< of the state: in huge pages that are set apart for it
  /// What comes out of the memory that limits are about: reserved pages count as used already, and
  /// towards no control group's limit.
  [[nodiscard]] std::uint64_t bytes() const noexcept {
    return state_bytes + staging_bytes - reserved_bytes;
  }
};

/// @return "", or a warning where less than a tenth of the limit will be left and at least a
/// hundredth of it is asked for. An unknown limit allows everything.
/// @throws Error{out_of_memory} with need, limit, its source, what is used, and what helps.
[[nodiscard]] std::string check_host_room(const HostNeed& need, const topology::MemoryLimit& limit);
/// Against what this process's machine and control groups have left now.
[[nodiscard]] std::string check_host_room(const HostNeed& need);

}  // namespace outboard::memory
