// SPDX-License-Identifier: Apache-2.0
// Shares of nodes stay within one bucket of their rates' shares, at every prefix.
#include "plan/interleave.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "outboard/error.hpp"
#include "plan/random_steps.hpp"

namespace outboard::plan {
namespace {

TEST(Interleave, EveryPrefixIsWithinOneBucketOfTheShares) {
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    testing::Draw draw(seed);
    std::vector<double> weights(1 + draw.below(8));
    double total = 0.0;
    for (double& weight : weights) total += weight = draw.between(0.05, 5.0);
    std::vector<std::uint64_t> items(1 + draw.below(200));
    std::uint64_t largest = 0;
    for (std::uint64_t& item : items) {
      item = seed % 2 == 0 ? 1000 : 1 + draw.below(1000);
      largest = std::max(largest, item);
    }
    const std::vector<std::uint32_t> nodes = interleave(items, weights);
    std::vector<double> given(weights.size(), 0.0);
    double sum = 0.0;
    for (std::size_t i = 0; i < items.size(); ++i) {
      sum += static_cast<double>(items[i]);
      given[nodes[i]] += static_cast<double>(items[i]);
      for (std::size_t n = 0; n < weights.size(); ++n) {
        ASSERT_LE(std::abs(given[n] - sum * weights[n] / total),
                  static_cast<double>(largest) * (1 + 1e-9))
            << "seed " << seed << ", item " << i << ", node " << n;
      }
    }
  }
}

TEST(Interleave, RefusesNodesWithoutRate) {
  const std::vector<std::uint64_t> items = {1};
  EXPECT_THROW((void)interleave(items, {}), Error);
  for (const double bad : {0.0, -1.0, std::numeric_limits<double>::infinity(),
                           std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_THROW((void)interleave(items, std::vector<double>{1.0, bad}), Error);
  }
}

}  // namespace
}  // namespace outboard::plan
