// SPDX-License-Identifier: Apache-2.0
/// Sizes in whole units.
#pragma once

#include <cstdint>

namespace outboard::core {

/// The smallest multiple of `multiple` that is not below `value`.
[[nodiscard]] constexpr std::uint64_t round_up(std::uint64_t value,
                                               std::uint64_t multiple) noexcept {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace outboard::core
