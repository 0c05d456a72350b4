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
        EXPECT_EQ(segment.offset % kSegmentAlignElems, 0U);
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

TEST(ModelLayout, EveryPrefixGivesEachNodeItsShareWithinOneBucket) {
  const std::vector<std::vector<double>> machines = {{1, 1}, {2, 1}, {3, 5}, {1, 1, 1, 1}};
  for (const auto& weights : machines) {
    const std::vector<ParameterShape> shapes(64, {8192, DType::f16});  // one bucket each
    const ModelLayout layout = make_layout(shapes, 16384, weights);
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
