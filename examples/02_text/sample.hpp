// SPDX-License-Identifier: Apache-2.0
/// Choosing the next byte, and showing bytes.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "../common/halves.hpp"
#include "../common/random.hpp"

namespace text {

using example::Half;
using example::Random;
using example::widen;

/// Draws a byte with probability proportional to exp(logit / temperature).
[[nodiscard]] std::uint8_t sample_byte(std::span<const Half> logits, double temperature,
                                       Random& random);

/// Printable ASCII and line ends as they are, any other byte as '?'.
[[nodiscard]] std::string show_text(std::span<const std::uint8_t> bytes);

}  // namespace text
