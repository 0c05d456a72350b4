// SPDX-License-Identifier: Apache-2.0
/// Choosing the next token, and showing bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "random.hpp"

namespace example {

/// Draws an index with probability proportional to exp(logit / temperature).
[[nodiscard]] std::size_t draw(std::span<const float> logits, double temperature, Random& random);

/// Printable ASCII and line ends as they are, any other byte as '?'.
[[nodiscard]] std::string show_text(std::span<const std::uint8_t> bytes);

}  // namespace example
