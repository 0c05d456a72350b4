// SPDX-License-Identifier: Apache-2.0
// Scalars of the rules beside AdamW, keys of stochastic rounding, what a group starts with.
#include "optim/rule_scalars.hpp"

#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <cstdint>
#include <set>

namespace outboard::optim {
namespace {

constexpr std::uint64_t kSteps[] = {1, 2, 10, 1000, 16777218, (std::uint64_t{1} << 31) + 1};

void expect_rounded(float got, long double formula, const char* name) {
  const auto want = static_cast<float>(formula);
  const float ulp = std::nextafter(std::abs(want), FLT_MAX) - std::abs(want);
  EXPECT_LE(std::abs(static_cast<long double>(got) - formula), static_cast<long double>(ulp))
      << name;
}

long double power(double base, std::uint64_t exponent) {
  return std::pow(static_cast<long double>(base), static_cast<long double>(exponent));
}

TEST(RuleScalars, OfAdamPutTheDecayIntoTheGradient) {
  const Adam rule{.lr = 3e-4, .beta1 = 0.85, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.1};
  for (const std::uint64_t t : kSteps) {
    SCOPED_TRACE(t);
    const simd::AdamScalars got = scalars(rule, t, 0.25);
    expect_rounded(got.beta1, 0.85L, "beta1");
    expect_rounded(got.one_minus_beta1, 0.15L, "one_minus_beta1");
    expect_rounded(got.beta2, 0.95L, "beta2");
    expect_rounded(got.one_minus_beta2, 0.05L, "one_minus_beta2");
    expect_rounded(got.eps, 1e-6L, "eps");
    expect_rounded(got.step_size, 3e-4L / (1.0L - power(0.85, t)), "step_size");
    expect_rounded(got.inv_sqrt_bias2, 1.0L / std::sqrt(1.0L - power(0.95, t)), "inv_sqrt_bias2");
    EXPECT_EQ(got.weight_decay, 0.1F);
    EXPECT_EQ(got.coeff, 0.25F);
    EXPECT_EQ(got.exp_avg_sq_floor, scalars(AdamW{.beta2 = 0.95}, t, 0.25).exp_avg_sq_floor);
    EXPECT_EQ(got.grad_sq_floor, scalars(AdamW{.beta2 = 0.95}, t, 0.25).grad_sq_floor);
  }
}

TEST(RuleScalars, OfLambLeaveTheRateToTheTrustRatio) {
  const Lamb rule{.lr = 3e-4, .weight_decay = 0.1};
  for (const std::uint64_t t : kSteps) {
    SCOPED_TRACE(t);
    const simd::LambScalars got = scalars(rule, t, 0.25);
    expect_rounded(got.inv_bias1, 1.0L / (1.0L - power(0.9, t)), "inv_bias1");
    expect_rounded(got.inv_sqrt_bias2, 1.0L / std::sqrt(1.0L - power(0.999, t)), "inv_sqrt_bias2");
    EXPECT_EQ(got.weight_decay, 0.1F);
    EXPECT_EQ(got.coeff, 0.25F);
    EXPECT_EQ(got.lr_trust, 0.0F);
  }
}

TEST(RuleScalars, OfSgdKnowTheFirstStep) {
  const Sgd rule{.lr = 0.1, .momentum = 0.9, .dampening = 0.3, .weight_decay = 0.01};
  const simd::SgdScalars first = scalars(rule, 1, 0.5);
  EXPECT_TRUE(first.first);
  EXPECT_FALSE(first.nesterov);
  EXPECT_EQ(first.lr, 0.1F);
  EXPECT_EQ(first.momentum, 0.9F);
  EXPECT_EQ(first.one_minus_dampening, static_cast<float>(0.7));
  EXPECT_EQ(first.weight_decay, 0.01F);
  EXPECT_EQ(first.coeff, 0.5F);
  EXPECT_FALSE(scalars(rule, 2, 0.5).first);
  EXPECT_TRUE(scalars(Sgd{.momentum = 0.9, .nesterov = true}, 2, 0.5).nesterov);
}

TEST(RuleScalars, OfLionHaveTwoInterpolations) {
  const simd::LionScalars got = scalars(Lion{.lr = 3e-5, .weight_decay = 0.1}, 7, 0.5);
  EXPECT_EQ(got.beta1, 0.9F);
  EXPECT_EQ(got.one_minus_beta1, static_cast<float>(1.0 - 0.9));
  EXPECT_EQ(got.beta2, 0.99F);
  EXPECT_EQ(got.one_minus_beta2, static_cast<float>(1.0 - 0.99));
  EXPECT_EQ(got.lr, 3e-5F);
  EXPECT_EQ(got.lr_wd, static_cast<float>(3e-5 * 0.1));
  EXPECT_EQ(got.coeff, 0.5F);
}

TEST(RuleScalars, OfAdagradLowerTheRate) {
  const Adagrad rule{.lr = 0.1, .lr_decay = 0.01, .eps = 1e-9, .weight_decay = 0.2};
  for (const std::uint64_t t : kSteps) {
    SCOPED_TRACE(t);
    const simd::AdagradScalars got = scalars(rule, t, 0.5);
    const auto before = static_cast<long double>(t - 1);
    expect_rounded(got.step_size, 0.1L / (1.0L + before * 0.01L), "step_size");
    EXPECT_EQ(got.eps, 1e-9F);
    EXPECT_EQ(got.weight_decay, 0.2F);
    EXPECT_EQ(got.coeff, 0.5F);
  }
}

TEST(RuleScalars, AreFiniteAndNeverNegativeZero) {
  const simd::AdamWScalars huge = scalars(AdamW{.lr = 1e30, .weight_decay = 1e30}, 1, 1.0);
  EXPECT_EQ(huge.lr_wd, FLT_MAX);
  EXPECT_EQ(scalars(Adam{.weight_decay = 1e300}, 1, 1.0).weight_decay, FLT_MAX);
  EXPECT_EQ(scalars(Sgd{.lr = 1e300}, 1, 1.0).lr, FLT_MAX);
  const simd::AdamWScalars zero = scalars(AdamW{.lr = -0.0, .beta1 = -0.0, .beta2 = -0.0}, 1, 1.0);
  for (const float scalar : {zero.lr_wd, zero.step_size, zero.beta1, zero.beta2}) {
    EXPECT_EQ(scalar, 0.0F);
    EXPECT_FALSE(std::signbit(scalar));
  }
}

TEST(RuleScalars, AreThoseOfTheRuleInAGroup) {
  const Rule rule = Lion{.lr = 0.5};
  const simd::RuleScalars got = scalars(rule, 3, 1.0);
  ASSERT_TRUE(std::holds_alternative<simd::LionScalars>(got));
  EXPECT_EQ(std::get<simd::LionScalars>(got).lr, 0.5F);
}

TEST(UpdateOptions, AreOffUnlessAGroupAsks) {
  const simd::UpdateOptions plain = update_options({}, 3, 7);
  EXPECT_FALSE(plain.rounding.on);
  EXPECT_EQ(plain.ema_one_minus_decay, 0.0F);
  const simd::UpdateOptions average = update_options({.ema_decay = 0.999}, 3, 7);
  EXPECT_EQ(average.ema_one_minus_decay, static_cast<float>(1.0 - 0.999));
  // 0 is the kernels' word for none; a decay of 0 is the master itself.
  EXPECT_EQ(update_options({.ema_decay = 0.0}, 3, 7).ema_one_minus_decay, 1.0F);
}

TEST(UpdateOptions, HaveAKeyOfTheirOwnForEachSeedParameterAndStep) {
  std::set<std::uint64_t> keys;
  constexpr std::uint64_t kEach = 32;
  for (std::uint64_t seed = 0; seed < kEach; ++seed) {
    for (std::uint64_t parameter = 0; parameter < kEach; ++parameter) {
      for (std::uint64_t step = 1; step <= kEach; ++step) {
        const GroupOptions options{.rounding = Rounding::stochastic, .seed = seed};
        const simd::UpdateOptions got = update_options(options, parameter, step);
        ASSERT_TRUE(got.rounding.on);
        keys.insert(got.rounding.key);
      }
    }
  }
  EXPECT_EQ(keys.size(), kEach * kEach * kEach);
}

TEST(InitialState, IsZeroButForAdagrad) {
  EXPECT_EQ(initial_state(AdamW{}), 0.0F);
  EXPECT_EQ(initial_state(Sgd{.momentum = 0.9}), 0.0F);
  EXPECT_EQ(initial_state(Adagrad{.initial_accumulator = 0.25}), 0.25F);
}

}  // namespace
}  // namespace outboard::optim
