// SPDX-License-Identifier: Apache-2.0
// What each node takes of the state: by rate, as far as its memory goes.
#include "plan/node_shares.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "outboard/error.hpp"
#include "plan/model_layout.hpp"
#include "plan/random_steps.hpp"

namespace outboard::plan {
namespace {

constexpr std::uint64_t kUnknown = UINT64_MAX;

double sum(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

TEST(NodeShares, AreTheRatesWhereThereIsRoom) {
  const std::vector<double> rates = {3.0, 1.0};
  const NodeShares shares =
      node_shares(rates, std::vector<std::uint64_t>{kUnknown, 400}, {1000, 100});
  EXPECT_EQ(shares.limited, (std::vector<bool>{false, false}));
  EXPECT_NEAR(shares.weights[0] / sum(shares.weights), 0.75, 1e-12);
}

TEST(NodeShares, ASmallNodeGetsWhatItHasRoomForLessABucket) {
  const NodeShares shares =
      node_shares(std::vector<double>{1.0, 1.0, 2.0},
                  std::vector<std::uint64_t>{kUnknown, 200, kUnknown}, {1000, 50});
  EXPECT_EQ(shares.limited, (std::vector<bool>{false, true, false}));
  EXPECT_NEAR(shares.weights[1] / sum(shares.weights), 0.15, 1e-12);
  EXPECT_NEAR(shares.weights[2] / shares.weights[0], 2.0, 1e-12);
}

TEST(NodeShares, WhatOneNodeGivesUpMayFillAnother) {
  const NodeShares shares = node_shares(std::vector<double>{1.0, 1.0, 1.0},
                                        std::vector<std::uint64_t>{110, 360, kUnknown}, {999, 10});
  EXPECT_EQ(shares.limited, (std::vector<bool>{true, true, false}));
  EXPECT_NEAR(shares.weights[2], 999 - 100 - 350, 1e-9);
}

TEST(NodeShares, NoRoomIsNoWeight) {
  const NodeShares shares = node_shares(std::vector<double>{1.0, 1.0},
                                        std::vector<std::uint64_t>{40, kUnknown}, {1000, 50});
  EXPECT_EQ(shares.weights[0], 0.0);
  EXPECT_TRUE(shares.limited[0]);
}

TEST(NodeShares, AreTheRatesWhereNothingFitsAnyway) {
  const std::vector<double> rates = {3.0, 1.0};
  const NodeShares expected{rates, {false, false}};
  EXPECT_EQ(node_shares(rates, std::vector<std::uint64_t>{100, 100}, {1000, 50}), expected);
  EXPECT_EQ(node_shares(rates, std::vector<std::uint64_t>{0, 0}, {0, 0}), expected);
  EXPECT_THROW((void)node_shares(rates, std::vector<std::uint64_t>{1}, {1000, 50}), Error);
}

/// Draws models, nodes and rooms, and follows the buckets in forward order.
TEST(NodeShares, HoldForEveryPrefixOfALayoutAndForEveryRoom) {
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    testing::Draw draw(seed);
    std::vector<ParameterShape> model(1 + draw.below(60));
    for (ParameterShape& shape : model) shape.elems = 1 + draw.below(60'000);
    std::vector<double> rates(2 + draw.below(4));
    for (double& rate : rates) rate = draw.between(0.1, 4.0);
    ModelLayout layout = make_layout(model, 16384, rates);
    ShareDemand demand;
    std::vector<bool> on_host;
    for (const Bucket& bucket : layout.buckets) {
      on_host.push_back(draw.below(4) > 0);
      if (!on_host.back()) continue;
      demand.elems += bucket.padded_elems;
      demand.largest_bucket_elems = std::max(demand.largest_bucket_elems, bucket.padded_elems);
    }
    std::vector<std::uint64_t> room;
    for (std::size_t node = 0; node < rates.size(); ++node) {
      room.push_back(draw.below(3) == 0 ? draw.below(demand.elems + 1) : kUnknown);
    }
    const NodeShares shares = node_shares(rates, room, demand);
    assign_nodes(layout, shares.weights, on_host);
    const bool any = std::ranges::find(shares.limited, true) != shares.limited.end();
    std::vector<double> given(rates.size(), 0.0);
    double all = 0.0;
    for (std::size_t b = 0; b < layout.buckets.size(); ++b) {
      if (!on_host[b]) continue;
      const auto size = static_cast<double>(layout.buckets[b].padded_elems);
      given[layout.buckets[b].node] += size;
      all += size;
      for (std::size_t node = 0; node < rates.size(); ++node) {
        const double share = shares.weights[node] / sum(shares.weights);
        ASSERT_LE(std::abs(given[node] - share * all),
                  static_cast<double>(demand.largest_bucket_elems) * (1 + 1e-9))
            << "seed " << seed << ", bucket " << b << ", node " << node;
      }
    }
    for (std::size_t node = 0; node < rates.size() && any; ++node) {
      ASSERT_LE(layout.node_elems[node], room[node]) << "seed " << seed << ", node " << node;
    }
  }
}

}  // namespace
}  // namespace outboard::plan
