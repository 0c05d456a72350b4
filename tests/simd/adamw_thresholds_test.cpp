// SPDX-License-Identifier: Apache-2.0
/// Where an operand is read as zero, to the bit, and where it is not.
#include "tests/simd/simd_support.hpp"

namespace outboard::simd::testing {
namespace {

class ThresholdsOnEveryTarget : public OnEveryTarget {};
OUTBOARD_ON_EVERY_TARGET(ThresholdsOnEveryTarget);

constexpr float kTiny = 0x1p-100F;
float below(float value) {
  return std::nextafter(value, 0.0F);
}

/// One element through a whole vector and through a tail: both must agree.
struct One {
  float param = 0.0F, exp_avg = 0.0F, exp_avg_sq = 0.0F;
  std::uint16_t grad = 0;
};
One step(const One& old, const AdamWScalars& s) {
  State state(129);
  for (std::size_t i = 0; i < state.size(); ++i) {
    state.param[i] = old.param;
    state.exp_avg[i] = old.exp_avg;
    state.exp_avg_sq[i] = old.exp_avg_sq;
    state.grad[i] = old.grad;
  }
  (void)adamw_step(state.shard(), s);
  const auto bits = [](float value) { return std::bit_cast<std::uint32_t>(value); };
  EXPECT_EQ(bits(state.param.front()), bits(state.param.back()));
  EXPECT_EQ(bits(state.exp_avg.front()), bits(state.exp_avg.back()));
  EXPECT_EQ(bits(state.exp_avg_sq.front()), bits(state.exp_avg_sq.back()));
  return {state.param[0], state.exp_avg[0], state.exp_avg_sq[0], state.weight[0]};
}

/// Everything 1 or 0 where it can be, so that results are single products.
AdamWScalars plain_scalars() {
  AdamWScalars s = make_scalars({});
  s.beta1 = 0.5F;
  s.one_minus_beta1 = 0.5F;
  s.beta2 = 0.5F;
  s.one_minus_beta2 = 0.5F;
  s.lr_wd = 0.5F;
  s.coeff = 1.0F;
  s.exp_avg_sq_floor = 2.0F * FLT_MIN;
  s.grad_sq_floor = 0x1.6a09e6p-63F;
  return s;
}

TEST_P(ThresholdsOnEveryTarget, ScaledGradientBelowTwoToMinus100IsZero) {
  AdamWScalars s = plain_scalars();
  s.coeff = kTiny;
  EXPECT_EQ(step({.grad = 0x3C00}, s).exp_avg, 0x1p-101F);
  EXPECT_EQ(step({.grad = 0xBC00}, s).exp_avg, -0x1p-101F);
  s.coeff = below(kTiny);
  EXPECT_EQ(step({.grad = 0x3C00}, s).exp_avg, 0.0F);
  EXPECT_EQ(step({.grad = 0xBC00}, s).exp_avg, 0.0F);
  EXPECT_FALSE(std::signbit(step({.exp_avg = -0.0F, .grad = 0xBC00}, s).exp_avg));
}

TEST_P(ThresholdsOnEveryTarget, HalfSubnormalGradientIsKept) {
  const AdamWScalars s = plain_scalars();
  EXPECT_EQ(step({.grad = 0x0001}, s).exp_avg, 0x1p-25F);
  EXPECT_EQ(step({.grad = 0x83FF}, s).exp_avg, -1023.0F * 0x1p-25F);
}

TEST_P(ThresholdsOnEveryTarget, OldMomentBelowTwoToMinus100IsZero) {
  const AdamWScalars s = plain_scalars();
  EXPECT_EQ(step({.exp_avg = kTiny}, s).exp_avg, 0x1p-101F);
  EXPECT_EQ(step({.exp_avg = -kTiny}, s).exp_avg, -0x1p-101F);
  for (const float small : {below(kTiny), FLT_MIN, FLT_TRUE_MIN}) {
    EXPECT_EQ(step({.exp_avg = small}, s).exp_avg, 0.0F);
    EXPECT_EQ(step({.exp_avg = -small}, s).exp_avg, 0.0F);
    EXPECT_FALSE(std::signbit(step({.exp_avg = -small}, s).exp_avg));
  }
}

TEST_P(ThresholdsOnEveryTarget, OldSquareBelowItsFloorIsZero) {
  const AdamWScalars s = plain_scalars();
  EXPECT_EQ(step({.exp_avg_sq = s.exp_avg_sq_floor}, s).exp_avg_sq, FLT_MIN);
  for (const float small : {below(s.exp_avg_sq_floor), FLT_MIN, FLT_TRUE_MIN}) {
    EXPECT_EQ(step({.exp_avg_sq = small}, s).exp_avg_sq, 0.0F);
  }
}

TEST_P(ThresholdsOnEveryTarget, GradientBelowItsFloorIsZeroInTheSquareOnly) {
  AdamWScalars s = plain_scalars();
  s.coeff = s.grad_sq_floor;
  EXPECT_EQ(step({.grad = 0x3C00}, s).exp_avg_sq, (0.5F * s.coeff) * s.coeff);
  EXPECT_EQ(step({.grad = 0xBC00}, s).exp_avg_sq, (0.5F * s.coeff) * s.coeff);
  s.coeff = below(s.grad_sq_floor);
  for (const std::uint16_t half : {std::uint16_t{0x3C00}, std::uint16_t{0xBC00}}) {
    const One now = step({.grad = half}, s);
    EXPECT_EQ(now.exp_avg_sq, 0.0F);
    EXPECT_EQ(std::fabs(now.exp_avg), 0.5F * s.coeff);
  }
}

TEST_P(ThresholdsOnEveryTarget, MasterBelowTwoToMinus100IsZeroInTheDecayOnly) {
  const AdamWScalars s = plain_scalars();
  EXPECT_EQ(step({.param = kTiny}, s).param, 0x1p-101F);
  for (const float small : {below(kTiny), FLT_MIN, FLT_TRUE_MIN}) {
    EXPECT_EQ(step({.param = small}, s).param, small);
    EXPECT_EQ(step({.param = -small}, s).param, -small);
  }
}

TEST_P(ThresholdsOnEveryTarget, NewMomentIsReadAsItIs) {
  AdamWScalars s = plain_scalars();
  s.eps = 0x1p-40F;
  s.step_size = 1.0F;
  // m becomes 2^-101, below the threshold of an old one; the step must still take it.
  EXPECT_EQ(step({.exp_avg = kTiny}, s).param, -0x1p-61F);
}

TEST_P(ThresholdsOnEveryTarget, SecondProductOfTheSquareComesFirst) {
  // ((1 - beta2) * g) * g and (1 - beta2) * (g * g) differ in the last bit for these.
  AdamWScalars s = plain_scalars();
  s.one_minus_beta2 = 0.001F;
  s.coeff = 0.7F;
  int differing = 0;
  for (std::uint16_t half = 0x3C00; half < 0x3C40; ++half) {
    const auto g = static_cast<float>(reference::gradient(s, reference::half_value(half), 0.0));
    const float scaled = 0.001F * g;
    const float expected = scaled * g;
    const float square = g * g;
    differing += 0.001F * square != expected;
    EXPECT_EQ(step({.grad = half}, s).exp_avg_sq, expected);
  }
  EXPECT_GT(differing, 0);
}

}  // namespace
}  // namespace outboard::simd::testing
