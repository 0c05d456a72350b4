// SPDX-License-Identifier: Apache-2.0
/// How much memory this process may lock, which is what pinning does.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace outboard::memory {

/// RLIMIT_MEMLOCK in bytes; nullopt if nothing limits it: it is infinite, or the process has
/// CAP_IPC_LOCK.
[[nodiscard]] std::optional<std::uint64_t> read_lock_limit();

/// The limit, and how to raise it, for the end of a sentence. "" without a limit.
[[nodiscard]] std::string how_to_lock_more(std::optional<std::uint64_t> limit);

}  // namespace outboard::memory
