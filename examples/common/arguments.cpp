// SPDX-License-Identifier: Apache-2.0
#include "arguments.hpp"

#include <charconv>
#include <cstdint>

namespace example {

std::size_t parse_bytes(std::string_view text) {
  std::uint64_t value = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view suffix(rest, static_cast<std::size_t>(text.data() + text.size() - rest));
  unsigned shift = 64;
  if (suffix.empty() || suffix == "B") shift = 0;
  if (suffix == "KiB") shift = 10;
  if (suffix == "MiB") shift = 20;
  if (suffix == "GiB") shift = 30;
  if (error != std::errc{} || shift == 64 || (value << shift) >> shift != value || value == 0) {
    throw UsageError("\"" + std::string(text) +
                     "\" is not a size; write a whole number of bytes, KiB, MiB or GiB, as 12MiB");
  }
  return value << shift;
}

void require(bool holds, const std::string& what) {
  if (!holds) throw UsageError(what + "; see --help");
}

void require_within(std::size_t value, const Limits& limits) {
  require(value >= limits.low && value <= limits.high,
          std::string(limits.flag) + " is " + std::to_string(value) + "; it must be from " +
              std::to_string(limits.low) + " to " + std::to_string(limits.high));
}

}  // namespace example
