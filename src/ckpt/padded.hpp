// SPDX-License-Identifier: Apache-2.0
/// Numbers in names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace outboard::ckpt {

/// With zeros in front up to `digits` of them; longer numbers as they are.
[[nodiscard]] inline std::string padded(std::uint64_t number, std::size_t digits) {
  const std::string text = std::to_string(number);
  return text.size() < digits ? std::string(digits - text.size(), '0') + text : text;
}

}  // namespace outboard::ckpt
