// SPDX-License-Identifier: Apache-2.0
/// fsync() and fdatasync() of this program, which can leave out what they are called for: what the
/// check of lost power must notice.
#pragma once

#include <cstdint>
#include <string>

namespace outboard::power_test {

enum class Syncs : std::uint8_t { all, not_of_files, not_of_folders };

/// From now on, in all threads.
void leave_out(Syncs which) noexcept;
/// "all", "not_of_files", "not_of_folders". @throws std::runtime_error for another.
[[nodiscard]] Syncs syncs_named(const std::string& name);

}  // namespace outboard::power_test
