// SPDX-License-Identifier: Apache-2.0
/// A small generator whose sequence is the same everywhere, unlike the standard distributions.
#pragma once

#include <cstdint>

namespace example {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  /// 64 uniform bits: a counter through the finaliser of MurmurHash3, as in SplitMix64.
  std::uint64_t bits() {
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  /// Uniform in [0, 1).
  double unit() { return static_cast<double>(bits() >> 11) * 0x1p-53; }
  /// Uniform in [0, bound), bound >= 1, to within bound / 2^53.
  std::uint64_t below(std::uint64_t bound) {
    return static_cast<std::uint64_t>(unit() * static_cast<double>(bound));
  }

 private:
  std::uint64_t state_;
};

}  // namespace example
