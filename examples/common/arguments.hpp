// SPDX-License-Identifier: Apache-2.0
/// What the command lines of the examples share.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>

namespace example {

/// A command line that cannot be carried out; the text is one line.
class UsageError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Reads "4096", "64KiB", "12MiB" or "1GiB". @throws UsageError quoting the text.
[[nodiscard]] std::size_t parse_bytes(std::string_view text);

/// @throws UsageError saying `what` unless `holds`.
void require(bool holds, const std::string& what);

/// A flag's value and what it may be.
struct Limits {
  const char* flag;
  std::size_t low, high;
};
/// @throws UsageError naming the flag, the value and the limits.
void require_within(std::size_t value, const Limits& limits);

}  // namespace example
