// SPDX-License-Identifier: Apache-2.0
/// The model to beat: how often each byte follows each byte, counted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "data.hpp"

namespace text {

/// Witten-Bell smoothing: P(b|a) = (n(a,b) + t(a) P(b)) / (n(a) + t(a)) with t(a) different bytes
/// seen after a, P(b) = (n(b) + 1) / (n + 256). It has no parameter to tune and on text beats
/// adding one to every count.
class Order1 {
 public:
  /// Counts the pairs inside the ranges.
  Order1(std::span<const std::uint8_t> bytes, std::span<const Range> ranges);

  [[nodiscard]] double probability(std::uint8_t before, std::uint8_t byte) const;
  /// Mean -ln P of the bytes at `positions`, in nats per byte.
  [[nodiscard]] double loss(std::span<const std::uint8_t> bytes,
                            std::span<const std::size_t> positions) const;

 private:
  std::vector<std::uint64_t> pairs_;   // 256 x 256
  std::vector<std::uint64_t> before_;  // n(a)
  std::vector<std::uint64_t> types_;   // t(a)
  std::vector<std::uint64_t> single_;  // n(b)
  std::uint64_t total_ = 0;
};

}  // namespace text
