// SPDX-License-Identifier: Apache-2.0
/// Regimes of a step, for tests that draw layouts: what takes most of its time.
#pragma once

#include <array>
#include <cstdint>

namespace outboard::testing {

/// Nanoseconds per element.
struct Regime {
  const char* name;
  double forward, backward, update, down, up;
};
inline constexpr std::array kRegimes = {
    Regime{"update", 20, 40, 70, 10, 10}, Regime{"link", 20, 40, 12, 60, 60},
    Regime{"compute", 40, 80, 12, 10, 10}, Regime{"balanced", 25, 30, 25, 25, 25}};

/// Of node `node`: together as fast as one; unequally so with an odd seed.
inline double update_ns(const Regime& regime, std::uint32_t nodes, std::uint32_t node,
                        std::uint64_t seed) {
  if (nodes == 1) return regime.update;
  return regime.update * (seed % 2 == 0 ? 2.0 : 1.5 + node);
}

/// Calls use(shape, regime, nodes, seed) for every regime on one and two nodes, with
/// `seeds_of(shape)` seeds.
template <class Shapes, class SeedsOf, class Use>
void for_each_layout(const Shapes& shapes, SeedsOf seeds_of, Use use) {
  for (const auto shape : shapes) {
    for (const Regime& regime : kRegimes) {
      for (std::uint32_t nodes = 1; nodes <= 2; ++nodes) {
        for (std::uint64_t seed = 0; seed < seeds_of(shape); ++seed) {
          use(shape, regime, nodes, seed);
        }
      }
    }
  }
}

}  // namespace outboard::testing
