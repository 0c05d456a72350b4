// SPDX-License-Identifier: Apache-2.0
#include "sample.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

namespace example {

std::size_t draw(std::span<const float> logits, double temperature, Random& random) {
  const double top = *std::max_element(logits.begin(), logits.end());
  std::vector<double> upto(logits.size());
  double sum = 0.0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    sum += std::exp((static_cast<double>(logits[i]) - top) / temperature);
    upto[i] = sum;
  }
  const auto drawn = std::upper_bound(upto.begin(), upto.end(), random.unit() * sum);
  return std::min(static_cast<std::size_t>(drawn - upto.begin()), logits.size() - 1);
}

std::string show_text(std::span<const std::uint8_t> bytes) {
  std::string text;
  for (const std::uint8_t byte : bytes) {
    const bool plain = (byte >= 0x20 && byte < 0x7F) || byte == '\n' || byte == '\t';
    text += plain ? static_cast<char>(byte) : '?';
  }
  return text;
}

}  // namespace example
