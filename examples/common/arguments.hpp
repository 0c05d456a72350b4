// SPDX-License-Identifier: Apache-2.0
/// What the command lines of the examples share: values read, checked, and named when wrong.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace example {

/// A command line that cannot be carried out; the text is one line.
class UsageError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// @throws UsageError saying `what` unless `holds`.
void require(bool holds, const std::string& what);

/// A flag and what its value may be.
struct Limits {
  const char* flag;
  std::uint64_t low, high;
};
/// @throws UsageError naming the flag, the value and the limits.
void require_within(std::uint64_t value, const Limits& limits);

/// Reads a whole number. @throws UsageError naming the flag, the text and the limits.
[[nodiscard]] std::uint64_t parse_count(std::string_view text, const Limits& limits);

/// Reads "4096", "64KiB", "12MiB" or "1GiB". @throws UsageError as parse_count().
[[nodiscard]] std::size_t parse_bytes(std::string_view text, const Limits& limits);
/// The shortest text that parse_bytes() reads as `bytes`.
[[nodiscard]] std::string spell_bytes(std::size_t bytes);

/// Numbers that make sense for a flag.
enum class Sign : std::uint8_t { positive, not_negative };
/// Reads a finite number. @throws UsageError naming the flag, the text and the limit.
[[nodiscard]] double parse_number(std::string_view text, const char* flag, Sign sign);
/// The fewest digits that parse_number() reads as `value`.
[[nodiscard]] std::string spell_number(double value);

}  // namespace example
