// SPDX-License-Identifier: Apache-2.0
// Parameters cut into buckets: nothing lost, borders where the norm's tree allows, nodes in turn.
#include "plan/model_layout.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

namespace outboard::plan {
namespace {

std::vector<std::uint64_t> random_sizes(std::mt19937_64& random) {
  std::vector<std::uint64_t> sizes(1 + random() % 40);
  for (std::uint64_t& size : sizes) {
    size = random() % 3 == 0 ? random() % 200000 : random() % 3000;
  }
  return sizes;
}

TEST(ModelLayout, CoversEveryElementOnceWithBordersAtWholeBlocks) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const auto sizes = random_sizes(random);
    const std::uint64_t bucket_elems = 4096 + random() % 60000;
    const ModelLayout layout = make_layout(sizes, bucket_elems, std::vector<double>{1.0});
    ASSERT_EQ(layout.parameters.size(), sizes.size());
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      std::uint64_t next = 0;
      for (std::uint32_t k = 0; k < layout.parameters[i].count; ++k) {
        const Segment& segment = layout.segments[layout.parameters[i].first + k];
        EXPECT_EQ(segment.parameter, i);
        EXPECT_EQ(segment.first_element, next);
        EXPECT_EQ(segment.first_element % kBorderElems, 0U);
        EXPECT_EQ(segment.offset % kSegmentAlignElems, 0U);
        next += segment.elems;
      }
      EXPECT_EQ(next, sizes[i]);
    }
    for (const Bucket& bucket : layout.buckets) {
      EXPECT_GE(bucket.segments, 1U);
      EXPECT_LE(bucket.padded_elems, std::max(bucket_elems, kBorderElems));
    }
  }
}

TEST(ModelLayout, EveryPrefixGivesEachNodeItsShareWithinOneBucket) {
  const std::vector<std::vector<double>> machines = {{1, 1}, {2, 1}, {3, 5}, {1, 1, 1, 1}};
  for (const auto& weights : machines) {
    const std::vector<std::uint64_t> sizes(64, 8192);  // one bucket each
    const ModelLayout layout = make_layout(sizes, 8192, weights);
    double total = 0.0;
    for (const double weight : weights) total += weight;
    std::vector<double> done(weights.size(), 0.0);
    for (std::size_t i = 0; i < layout.buckets.size(); ++i) {
      done[layout.buckets[i].node] += 1.0;
      for (std::size_t node = 0; node < weights.size(); ++node) {
        const double share = static_cast<double>(i + 1) * weights[node] / total;
        EXPECT_LE(std::abs(done[node] - share), 1.0) << "after " << i + 1 << " buckets";
      }
    }
  }
}

TEST(ModelLayout, EmptyParametersHaveNoSegment) {
  const ModelLayout layout =
      make_layout(std::vector<std::uint64_t>{8, 0, 24}, 4096, std::vector<double>{1.0});
  EXPECT_EQ(layout.parameters[1].count, 0U);
  EXPECT_EQ(layout.buckets.size(), 1U);
}

}  // namespace
}  // namespace outboard::plan
