// SPDX-License-Identifier: Apache-2.0
#include "core/show_number.hpp"

#include <array>
#include <charconv>
#include <cmath>

namespace outboard::core {

std::string show_number(double value) {
  std::array<char, 32> text{};
  char* const last = text.data() + text.size();
  const double magnitude = std::abs(value);
  const bool plain = magnitude >= 1e-4 && magnitude < 1e16;
  const auto end = plain ? std::to_chars(text.data(), last, value, std::chars_format::fixed).ptr
                         : std::to_chars(text.data(), last, value).ptr;
  return {text.data(), end};
}

}  // namespace outboard::core
