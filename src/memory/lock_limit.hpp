// SPDX-License-Identifier: Apache-2.0
/// How much memory this process may lock, which is what pinning does.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace outboard::memory {

/// RLIMIT_MEMLOCK in bytes; nullopt if nothing limits it: it is infinite, or it does not
/// count for this process: topology::may_lock_all().
[[nodiscard]] std::optional<std::uint64_t> read_lock_limit();

struct LockUse {
  std::optional<std::uint64_t> limit{};  ///< as read_lock_limit()
  std::uint64_t locked_bytes = 0;        ///< of this process
};
[[nodiscard]] LockUse read_lock_use();

/// Why nobody could lock `bytes` more, and what helps, for the end of a sentence: the limit, if it
/// leaves less than that; else the device has a limit of its own.
[[nodiscard]] std::string why_refused(const LockUse& use, std::uint64_t bytes);

}  // namespace outboard::memory
