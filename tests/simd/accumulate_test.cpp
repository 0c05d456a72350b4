// SPDX-License-Identifier: Apache-2.0
// FP32 gradient accumulation, and the kernels that read its sums.
#include "simd/accumulate.hpp"

#include <bit>
#include <initializer_list>
#include <limits>
#include <vector>

#include "simd/convert.hpp"
#include "simd/reduce.hpp"
#include "simd_support.hpp"

namespace outboard::simd::testing {
namespace {

class AccumulateOnEveryTarget : public OnEveryTarget {};

std::vector<std::uint16_t> random_halves(Random& random, std::size_t count) {
  std::vector<std::uint16_t> halves(count);
  for (auto& half : halves) half = random.finite_half();
  return halves;
}

std::vector<float> widened(const std::vector<std::uint16_t>& halves) {
  std::vector<float> floats(halves.size());
  to_float({halves.data(), Format::f16}, floats);
  return floats;
}

TEST_P(AccumulateOnEveryTarget, AddsInTheOrderOfTheCallsAtAnyLengthAndOffset) {
  Random random(test_seed());
  SCOPED_TRACE(seed_text());
  for (const std::size_t size :
       std::initializer_list<std::size_t>{0, 1, 7, 8, 15, 16, 17, 63, 64, 65, 1025}) {
    for (const std::size_t offset : std::initializer_list<std::size_t>{0, 1, 5, 15}) {
      std::vector<float> sum(offset + size + 1, std::numeric_limits<float>::quiet_NaN());
      std::vector<float> expected(size);
      for (int call = 0; call < 3; ++call) {
        const auto grad = random_halves(random, size);
        const auto values = widened(grad);
        accumulate({{grad.data(), Format::f16}, std::span(sum).subspan(offset, size), call == 0});
        for (std::size_t i = 0; i < size; ++i) {
          expected[i] = call == 0 ? values[i] : expected[i] + values[i];
          ASSERT_EQ(std::bit_cast<std::uint32_t>(sum[offset + i]),
                    std::bit_cast<std::uint32_t>(expected[i]))
              << size << " elements from " << offset << ", element " << i;
        }
      }
      EXPECT_TRUE(std::isnan(sum[offset + size])) << "wrote behind the end";
    }
  }
}

TEST_P(AccumulateOnEveryTarget, ReductionOfFloatsHasTheBitsOfTheHalvesTheyCameFrom) {
  Random random(test_seed());
  SCOPED_TRACE(seed_text());
  for (const std::size_t size :
       std::initializer_list<std::size_t>{1, 64, 4095, 4096, 4097, 20000}) {
    auto halves = random_halves(random, size);
    for (const bool bad : {false, true}) {
      if (bad) {
        halves[size / 2] = 0x7E01;
        halves[size - 1] = 0xFC00;
      }
      const auto from_halves = reduce_gradient(halves);
      const auto floats = widened(halves);
      const auto from_floats = reduce_gradient(std::span<const float>(floats));
      EXPECT_EQ(std::bit_cast<std::uint64_t>(from_floats.sum_of_squares),
                std::bit_cast<std::uint64_t>(from_halves.sum_of_squares));
      EXPECT_EQ(from_floats.non_finite, from_halves.non_finite);
      if (!bad) continue;
      EXPECT_EQ(from_floats.first_non_finite, from_halves.first_non_finite);
      EXPECT_EQ(from_floats.first_is_nan, from_halves.first_is_nan);
    }
  }
}

TEST_P(AccumulateOnEveryTarget, UpdateFromFloatsHasTheBitsOfTheUpdateFromHalves) {
  Random random(test_seed());
  SCOPED_TRACE(seed_text());
  AdamWScalars scalars{0.9F,
                       0.1F,
                       0.999F,
                       0.001F,
                       1e-8F,
                       1e-3F,
                       1e-5F,
                       1.5F,
                       0x1p-10F,
                       FLT_MIN / 0.999F,
                       std::sqrt(FLT_MIN / 0.001F)};
  const std::size_t size = 1027;
  const auto halves = random_halves(random, size);
  const auto floats = widened(halves);
  std::vector<float> param(size), exp_avg(size), exp_avg_sq(size);
  for (std::size_t i = 0; i < size; ++i) {
    param[i] = random.spread(-10, 1);
    exp_avg[i] = random.spread(-20, -3);
    exp_avg_sq[i] = std::abs(random.spread(-40, -6));
  }
  auto param2 = param, exp_avg2 = exp_avg, exp_avg_sq2 = exp_avg_sq;
  std::vector<std::uint16_t> weight(size), weight2(size);
  const Elements out = {weight.data(), Format::f16}, out2 = {weight2.data(), Format::f16};
  adamw_step({{halves.data(), Format::f16}, out, param, {exp_avg, exp_avg_sq}}, scalars);
  adamw_step({{floats.data(), Format::f32}, out2, param2, {exp_avg2, exp_avg_sq2}}, scalars);
  EXPECT_TRUE(same_bits(param, param2));
  EXPECT_TRUE(same_bits(exp_avg, exp_avg2));
  EXPECT_TRUE(same_bits(exp_avg_sq, exp_avg_sq2));
  EXPECT_TRUE(same_bits(weight, weight2));
}

TEST_P(AccumulateOnEveryTarget, ASubnormalFloatGradientIsReadAsZero) {
  AdamWScalars scalars{0.9F, 0.1F, 0.999F, 0.001F, 1e-8F, 1e-3F, 0.0F, 1.5F, 1e30F, 0.0F, 0.0F};
  std::vector<float> grad = {1e-39F, -1e-39F, FLT_MIN}, param(3), exp_avg(3), exp_avg_sq(3);
  std::vector<std::uint16_t> weight(3);
  const Elements out = {weight.data(), Format::f16};
  adamw_step({{grad.data(), Format::f32}, out, param, {exp_avg, exp_avg_sq}}, scalars);
  EXPECT_EQ(exp_avg[0], 0.0F);
  EXPECT_EQ(exp_avg[1], 0.0F);
  EXPECT_GT(exp_avg[2], 0.0F);
}

OUTBOARD_ON_EVERY_TARGET(AccumulateOnEveryTarget);

}  // namespace
}  // namespace outboard::simd::testing
