// SPDX-License-Identifier: Apache-2.0
// Parameters cut into buckets: nothing lost, borders where the norm's tree allows, nodes in turn.
#include "plan/model_layout.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "core/round_up.hpp"
#include "plan/random_steps.hpp"

namespace outboard::plan {
namespace {

std::vector<ParameterShape> random_shapes(std::mt19937_64& random) {
  constexpr DType kDTypes[] = {DType::f16, DType::bf16, DType::f32};
  std::vector<ParameterShape> shapes(1 + random() % 40);
  for (ParameterShape& shape : shapes) {
    shape.elems = random() % 3 == 0 ? random() % 200000 : random() % 3000;
    shape.dtype = kDTypes[random() % 5 % 3];
  }
  return shapes;
}

TEST(ModelLayout, CoversEveryElementOnceWithBordersAtWholeBlocks) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const auto shapes = random_shapes(random);
    const std::uint64_t bucket_bytes = 8192 + random() % 120000;
    const ModelLayout layout = make_layout(shapes, bucket_bytes, std::vector<double>{1.0});
    ASSERT_EQ(layout.parameters.size(), shapes.size());
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      std::uint64_t next = 0;
      for (std::uint32_t k = 0; k < layout.parameters[i].count; ++k) {
        const Segment& segment = layout.segments[layout.parameters[i].first + k];
        EXPECT_EQ(segment.parameter, i);
        EXPECT_EQ(segment.first_element, next);
        EXPECT_EQ(segment.first_element % kBorderElems, 0U);
        if (!layout.buckets[segment.bucket].packs(segment)) {
          EXPECT_EQ(segment.offset % kSegmentAlignElems, 0U);
        }
        EXPECT_EQ(layout.buckets[segment.bucket].dtype, shapes[i].dtype);
        next += segment.elems;
      }
      EXPECT_EQ(next, shapes[i].elems);
    }
    for (const Bucket& bucket : layout.buckets) {
      EXPECT_GE(bucket.segments, 1U);
      EXPECT_LE(bucket.slot_bytes(),
                std::max(bucket_bytes, kBorderElems * dtype_bytes(bucket.dtype)));
    }
  }
}

/// What is put behind is the layout that it was, numbered on; what was there is untouched.
TEST(ModelLayout, IsPutBehindAnother) {
  const std::vector<double> weights = {2.0, 1.0};
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const ModelLayout first = make_layout(random_shapes(random), 20000, weights);
    const ModelLayout second = make_layout(random_shapes(random), 20000, weights);
    ModelLayout both = first;
    append_layout(both, second);
    ASSERT_EQ(both.segments.size(), first.segments.size() + second.segments.size());
    ASSERT_EQ(both.buckets.size(), first.buckets.size() + second.buckets.size());
    ASSERT_EQ(both.parameters.size(), first.parameters.size() + second.parameters.size());
    for (std::uint32_t p = 0; p < both.parameters.size(); ++p) {
      const bool late = p >= first.parameters.size();
      const ModelLayout& own = late ? second : first;
      const std::size_t from = late ? first.parameters.size() : 0;
      ASSERT_EQ(both.parameters[p].count, own.parameters[p - from].count);
      for (std::uint32_t k = 0; k < both.parameters[p].count; ++k) {
        const Segment& segment = both.segments[both.parameters[p].first + k];
        const Segment& before = own.segments[own.parameters[p - from].first + k];
        EXPECT_EQ(segment.parameter, p);
        EXPECT_EQ(segment.offset, before.offset);
        EXPECT_EQ(segment.first_element, before.first_element);
        const Bucket& bucket = both.buckets[segment.bucket];
        EXPECT_LE(bucket.first_segment, both.parameters[p].first + k);
        EXPECT_GT(bucket.first_segment + bucket.segments, both.parameters[p].first + k);
        EXPECT_EQ(bucket.node, own.buckets[before.bucket].node);
        EXPECT_EQ(bucket.node_offset, own.buckets[before.bucket].node_offset);
        EXPECT_EQ(segment.bucket - bucket.unit, before.bucket - own.buckets[before.bucket].unit);
      }
    }
    for (std::size_t node = 0; node < weights.size(); ++node) {
      EXPECT_EQ(both.node_elems[node], first.node_elems[node] + second.node_elems[node]);
    }
  }
}

TEST(ModelLayout, SmallParametersFillTheStartOfTheirBucket) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const auto shapes = random_shapes(random);
    const ModelLayout layout =
        make_layout(shapes, 8192 + random() % 500000, std::vector<double>{1.0});
    for (const Bucket& bucket : layout.buckets) {
      std::uint64_t packed = 0;
      std::uint64_t rest = core::round_up(bucket.packed_elems, kSegmentAlignElems);
      std::uint32_t small = 0;
      for (std::uint32_t i = 0; i < bucket.segments; ++i) {
        const Segment& segment = layout.segments[bucket.first_segment + i];
        const ParameterShape& shape = shapes[segment.parameter];
        const bool is_small =
            segment.elems == shape.elems && shape.elems * dtype_bytes(shape.dtype) < 64 * 1024;
        small += is_small ? 1 : 0;
        if (bucket.packs(segment)) {
          EXPECT_TRUE(is_small);
          EXPECT_EQ(segment.offset, packed) << "a gap, or another order";
          packed += segment.elems;
        } else {
          EXPECT_EQ(segment.offset, rest);
          rest += core::round_up(segment.elems, kSegmentAlignElems);
        }
      }
      EXPECT_EQ(bucket.packed_elems, packed);
      EXPECT_EQ(bucket.packed_segments, small < 2 ? 0 : small) << "two of them or more";
      EXPECT_EQ(bucket.padded_elems, rest);
    }
  }
}

/// Every prefix gives each node its share within the largest bucket, and nodes are filled in order.
void expect_interleaved(const ModelLayout& layout, const std::vector<double>& weights) {
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::uint64_t largest = 0;
  for (const Bucket& bucket : layout.buckets) largest = std::max(largest, bucket.padded_elems);
  std::vector<std::uint64_t> done(weights.size(), 0);
  std::uint64_t all = 0;
  for (std::size_t i = 0; i < layout.buckets.size(); ++i) {
    const Bucket& bucket = layout.buckets[i];
    ASSERT_LT(bucket.node, weights.size());
    ASSERT_EQ(bucket.node_offset, done[bucket.node]);
    done[bucket.node] += bucket.padded_elems;
    all += bucket.padded_elems;
    for (std::size_t node = 0; node < weights.size(); ++node) {
      const double share = static_cast<double>(all) * weights[node] / total;
      ASSERT_LE(std::abs(static_cast<double>(done[node]) - share),
                static_cast<double>(largest) * (1 + 1e-9))
          << "node " << node << " after " << i + 1 << " buckets";
    }
  }
  EXPECT_EQ(layout.node_elems, done);
}

TEST(ModelLayout, EveryPrefixGivesEachNodeItsShareWithinOneBucket) {
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    testing::Draw draw(seed);
    std::vector<double> weights(1 + draw.below(8));
    for (double& weight : weights) weight = draw.between(0.05, 5.0);
    std::mt19937_64 random(seed);
    // Even buckets, one for each parameter, or ragged ones of every dtype.
    const auto shapes = seed % 2 == 0
                            ? std::vector<ParameterShape>(draw.below(200), {8192, DType::f16})
                            : random_shapes(random);
    expect_interleaved(make_layout(shapes, 16384, weights), weights);
    if (HasFatalFailure()) return;
  }
}

TEST(ModelLayout, EmptyParametersHaveNoSegment) {
  // The empty one is of another dtype, and still parts nothing.
  const std::vector<ParameterShape> shapes = {{8, DType::f16}, {0, DType::f32}, {24, DType::f16}};
  const ModelLayout layout = make_layout(shapes, 8192, std::vector<double>{1.0});
  EXPECT_EQ(layout.parameters[1].count, 0U);
  EXPECT_EQ(layout.buckets.size(), 1U);
}

TEST(ModelLayout, ABucketHoldsOneDType) {
  const std::vector<ParameterShape> shapes = {{100, DType::f16},  {100, DType::bf16},
                                              {100, DType::bf16}, {100, DType::f32},
                                              {100, DType::f16},  {100, DType::f16}};
  const ModelLayout layout = make_layout(shapes, 8192, std::vector<double>{1.0});
  ASSERT_EQ(layout.buckets.size(), 4U);
  const DType expected[] = {DType::f16, DType::bf16, DType::f32, DType::f16};
  const std::uint32_t segments[] = {1, 2, 1, 2};
  for (std::size_t i = 0; i < layout.buckets.size(); ++i) {
    EXPECT_EQ(layout.buckets[i].dtype, expected[i]) << i;
    EXPECT_EQ(layout.buckets[i].segments, segments[i]) << i;
  }
  EXPECT_EQ(layout.buckets[2].slot_bytes(), 512U);  // 100 elements padded to 128, of 4 bytes
}

TEST(ModelLayout, ABucketSizeIsInBytes) {
  const std::vector<ParameterShape> shapes = {{65536, DType::f32}};
  const ModelLayout layout = make_layout(shapes, 65536, std::vector<double>{1.0});
  EXPECT_EQ(layout.buckets.size(), 4U);
  // Less than one block: a bucket still has room for one.
  EXPECT_EQ(make_layout(shapes, 8192, std::vector<double>{1.0}).buckets.size(), 16U);
}

}  // namespace
}  // namespace outboard::plan
