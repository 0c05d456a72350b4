// SPDX-License-Identifier: Apache-2.0
#include "order1.hpp"

#include <cmath>

namespace text {

Order1::Order1(std::span<const std::uint8_t> bytes, std::span<const Range> ranges)
    : pairs_(256 * 256), before_(256), types_(256), single_(256) {
  for (const Range& range : ranges) {
    for (std::size_t i = range.begin; i < range.end; ++i) {
      ++single_[bytes[i]];
      ++total_;
      if (i == range.begin) continue;
      const std::uint8_t a = bytes[i - 1];
      if (pairs_[a * 256u + bytes[i]]++ == 0) ++types_[a];
      ++before_[a];
    }
  }
}

double Order1::probability(std::uint8_t before, std::uint8_t byte) const {
  const double alone = static_cast<double>(single_[byte] + 1) / static_cast<double>(total_ + 256);
  if (before_[before] == 0) return alone;
  const auto types = static_cast<double>(types_[before]);
  const auto count = static_cast<double>(pairs_[before * 256u + byte]);
  return (count + types * alone) / (static_cast<double>(before_[before]) + types);
}

double Order1::loss(std::span<const std::uint8_t> bytes,
                    std::span<const std::size_t> positions) const {
  double sum = 0.0;
  for (const std::size_t at : positions) sum -= std::log(probability(bytes[at - 1], bytes[at]));
  return sum / static_cast<double>(positions.size());
}

}  // namespace text
