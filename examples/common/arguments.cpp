// SPDX-License-Identifier: Apache-2.0
#include "arguments.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

namespace example {
namespace {

struct Unit {
  const char* suffix;
  unsigned shift;
};
constexpr std::array<Unit, 5> kUnits{{{"GiB", 30}, {"MiB", 20}, {"KiB", 10}, {"B", 0}, {"", 0}}};

/// nullopt for what is no size, or one of more than 2^64 bytes.
std::optional<std::uint64_t> size_of(std::string_view text) {
  std::uint64_t value = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{}) return std::nullopt;
  const std::string_view suffix = text.substr(static_cast<std::size_t>(rest - text.data()));
  for (const Unit& unit : kUnits) {
    if (suffix != unit.suffix) continue;
    if ((value << unit.shift) >> unit.shift != value) return std::nullopt;
    return value << unit.shift;
  }
  return std::nullopt;
}

std::string is(const char* flag, std::string_view text) {
  return std::string(flag) + " is \"" + std::string(text) + "\"; ";
}

}  // namespace

void require(bool holds, const std::string& what) {
  if (!holds) throw UsageError(what + "; see --help");
}

void require_within(std::uint64_t value, const Limits& limits) {
  require(value >= limits.low && value <= limits.high,
          std::string(limits.flag) + " is " + std::to_string(value) + "; it must be from " +
              std::to_string(limits.low) + " to " + std::to_string(limits.high));
}

std::uint64_t parse_count(std::string_view text, const Limits& limits) {
  std::uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  require(error == std::errc{} && rest == end,
          is(limits.flag, text) + "it must be a whole number from " + std::to_string(limits.low) +
              " to " + std::to_string(limits.high));
  require_within(value, limits);
  return value;
}

std::size_t parse_bytes(std::string_view text, const Limits& limits) {
  const auto bytes = size_of(text);
  require(bytes.has_value(),
          is(limits.flag, text) + "write a whole number of bytes, KiB, MiB or GiB, as 12MiB");
  require(*bytes >= limits.low && *bytes <= limits.high,
          std::string(limits.flag) + " is " + spell_bytes(*bytes) + "; it must be from " +
              spell_bytes(limits.low) + " to " + spell_bytes(limits.high));
  return *bytes;
}

std::string spell_bytes(std::size_t bytes) {
  for (const Unit& unit : kUnits) {
    const std::size_t size = std::size_t{1} << unit.shift;
    if (bytes >= size && bytes % size == 0) return std::to_string(bytes / size) + unit.suffix;
  }
  return "0B";
}

double parse_number(std::string_view text, const char* flag, Sign sign) {
  double value = 0.0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  const bool allowed = value > 0.0 || (sign == Sign::not_negative && value == 0.0);
  require(error == std::errc{} && rest == end && std::isfinite(value) && allowed,
          is(flag, text) + "it must be a finite number " +
              (sign == Sign::positive ? "above 0" : "of at least 0"));
  return value;
}

std::string spell_number(double value) {
  std::array<char, 32> digits;
  char* const end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  return {digits.data(), end};
}

}  // namespace example
