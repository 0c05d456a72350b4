// SPDX-License-Identifier: Apache-2.0
/// Made-up text and made-up tensors for the tests of the text example.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/halves.hpp"
#include "common/random.hpp"
#include "outboard/half.hpp"

namespace text {

using example::Half;
using example::Random;

}  // namespace text

namespace text::test {

/// Sentences from a small grammar: learnable, and longer context helps.
inline std::string made_up_text(std::size_t bytes, std::uint64_t seed) {
  constexpr std::array<std::string_view, 6> kWho{"the engine", "a gradient", "the weight",
                                                 "one bucket", "the device", "a step"};
  constexpr std::array<std::string_view, 6> kDoes{"waits for", "moves",   "refreshes",
                                                  "carries",   "follows", "updates"};
  Random random(seed);
  std::string text;
  while (text.size() < bytes) {
    text += kWho[random.below(kWho.size())];
    text += ' ';
    text += kDoes[random.below(kDoes.size())];
    text += ' ';
    text += kWho[random.below(kWho.size())];
    text += random.below(4) == 0 ? ".\n" : ", ";
  }
  text.resize(bytes);
  return text;
}

inline std::vector<std::uint8_t> as_bytes(std::string_view text) {
  return {text.begin(), text.end()};
}

/// FP16 values uniform in [-bound, bound].
inline std::vector<Half> random_halves(std::size_t count, double bound, Random& random) {
  std::vector<Half> halves(count);
  for (Half& half : halves) {
    half = outboard::half_from_float(static_cast<float>(bound * (2.0 * random.unit() - 1.0)));
  }
  return halves;
}

inline double value(Half half) {
  return static_cast<double>(outboard::half_to_float(half));
}

/// Half a unit in the last place of FP16 around `exact`, plus `sum_error` for FP32 sums.
inline double rounding(double exact, double sum_error) {
  const double magnitude = exact < 0.0 ? -exact : exact;
  return magnitude * 0x1p-11 + 0x1p-25 + sum_error;
}

}  // namespace text::test
