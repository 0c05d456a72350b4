// SPDX-License-Identifier: Apache-2.0
#include "sample.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

namespace text {

std::uint8_t sample_byte(std::span<const Half> logits, double temperature, Random& random) {
  std::vector<float> z(logits.size());
  widen(logits, z);
  const double top = *std::max_element(z.begin(), z.end());
  std::vector<double> upto(z.size());
  double sum = 0.0;
  for (std::size_t i = 0; i < z.size(); ++i) {
    sum += std::exp((static_cast<double>(z[i]) - top) / temperature);
    upto[i] = sum;
  }
  const auto drawn = std::upper_bound(upto.begin(), upto.end(), random.unit() * sum);
  const auto last = static_cast<std::ptrdiff_t>(z.size()) - 1;
  return static_cast<std::uint8_t>(std::min(drawn - upto.begin(), last));
}

std::string show_text(std::span<const std::uint8_t> bytes) {
  std::string text;
  for (const std::uint8_t byte : bytes) {
    const bool plain = (byte >= 0x20 && byte < 0x7F) || byte == '\n' || byte == '\t';
    text += plain ? static_cast<char>(byte) : '?';
  }
  return text;
}

}  // namespace text
