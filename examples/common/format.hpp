// SPDX-License-Identifier: Apache-2.0
/// Values as text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "outboard/stats.hpp"

namespace example {

/// As printf; at most 255 characters.
[[nodiscard]] __attribute__((format(printf, 1, 2))) std::string print(const char* format, ...);
/// "12.00 MiB"; from 10 GiB on "12.00 GiB".
[[nodiscard]] std::string show_bytes(std::size_t bytes);
/// Sixteen hexadecimal digits.
[[nodiscard]] std::string show_digest(std::uint64_t digest);
/// "applied", "skipped" or "empty".
[[nodiscard]] const char* outcome_of(const outboard::StepResult& result);

}  // namespace example
