// SPDX-License-Identifier: Apache-2.0
/// The scalars of an update against their formulas in a wider type.
#include "optim/rule_scalars.hpp"

#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "pipeline/flow.hpp"

namespace outboard::optim {
namespace {

static_assert(std::is_same_v<decltype(pipeline::Parameter::step_count), std::uint64_t>);

constexpr std::uint64_t kPast24Bits = 16'777'218;                    // a float stops at 2^24
constexpr std::uint64_t kPast31Bits = (std::uint64_t{1} << 31) + 1;  // an int stops before 2^31
constexpr std::uint64_t kPast32Bits = (std::uint64_t{1} << 32) + 3;

std::vector<std::uint64_t> steps_to_try() {
  std::vector<std::uint64_t> steps;
  for (std::uint64_t t = 1; t <= 300; ++t) steps.push_back(t);
  for (const std::uint64_t border : {std::uint64_t{1} << 24, std::uint64_t{1} << 31}) {
    for (std::uint64_t t = border - 2; t <= border + 2; ++t) steps.push_back(t);
  }
  steps.insert(steps.end(), {1000, 20'000, kPast24Bits, kPast31Bits, kPast32Bits});
  return steps;
}

/// At most one step of a float away.
void expect_one_ulp(float got, long double want, const char* what) {
  const auto nearest = static_cast<float>(want);
  const float below = std::nextafterf(nearest, -std::numeric_limits<float>::infinity());
  const float above = std::nextafterf(nearest, std::numeric_limits<float>::infinity());
  EXPECT_GE(got, below) << what;
  EXPECT_LE(got, above) << what;
}

const std::vector<AdamW>& settings_to_try() {
  static const std::vector<AdamW> all = {
      {},
      {.lr = 6e-4, .beta1 = 0.9, .beta2 = 0.95, .weight_decay = 0.1},
      {.lr = 2e-6, .beta1 = 0.0, .beta2 = 0.0, .eps = 1e-15, .weight_decay = 0.01},
      {.lr = 0.1, .beta1 = 0.99, .beta2 = 0.9999, .eps = 1e-6, .weight_decay = 0.5},
      {.lr = 0.0, .beta1 = 0.5, .beta2 = 0.99},
      {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.99999, .eps = 1.0},
  };
  return all;
}

TEST(AdamWScalars, AreWithinOneUlpOfTheirFormulas) {
  for (const AdamW& s : settings_to_try()) {
    for (const std::uint64_t t : steps_to_try()) {
      SCOPED_TRACE(::testing::Message() << "lr " << s.lr << " beta2 " << s.beta2 << " t " << t);
      const long double steps = static_cast<long double>(t);
      const long double lr = s.lr, beta1 = s.beta1, beta2 = s.beta2, decay = s.weight_decay;
      const long double smallest = FLT_MIN;
      const simd::AdamWScalars got = scalars(s, t, 0x1p-16);
      expect_one_ulp(got.beta1, beta1, "beta1");
      expect_one_ulp(got.one_minus_beta1, 1.0L - beta1, "one_minus_beta1");
      expect_one_ulp(got.beta2, beta2, "beta2");
      expect_one_ulp(got.one_minus_beta2, 1.0L - beta2, "one_minus_beta2");
      expect_one_ulp(got.eps, s.eps, "eps");
      expect_one_ulp(got.step_size, lr / (1.0L - std::pow(beta1, steps)), "step_size");
      expect_one_ulp(got.lr_wd, lr * decay, "lr_wd");
      expect_one_ulp(got.inv_sqrt_bias2, 1.0L / std::sqrt(1.0L - std::pow(beta2, steps)),
                     "inv_sqrt_bias2");
      EXPECT_EQ(got.coeff, 0x1p-16F);
      if (beta2 > 0.0L) expect_one_ulp(got.exp_avg_sq_floor, smallest / beta2, "exp_avg_sq_floor");
      expect_one_ulp(got.grad_sq_floor, std::sqrt(smallest / (1.0L - beta2)), "grad_sq_floor");
    }
  }
}

TEST(AdamWScalars, TheCoefficientIsRoundedOnce) {
  for (const double coeff : {1.0, 1.0 / 3.0, 0.2 / 1024.0, 0x1p-100, 1.0 + 0x1p-30}) {
    EXPECT_EQ(scalars(AdamW{}, 1, coeff).coeff, static_cast<float>(coeff));
  }
}

/// A counter in 16 bits stops at 256 (bfloat16) or 2048 (half), one in a float at 2^24.
TEST(AdamWScalars, TheStepCountIsNotRounded) {
  const auto bias2 = [](const AdamW& s, std::uint64_t t) {
    const auto inv = static_cast<double>(scalars(s, t, 1.0).inv_sqrt_bias2);
    return 1.0 / (inv * inv);
  };
  EXPECT_NEAR(bias2({}, 300), 0.2592930, 1e-7);  // 0.2259572: stuck at 256
  EXPECT_NEAR(bias2({}, 2049), 1.0 - std::pow(0.999, 2049.0), 1e-6);
  // A beta2 that still moves after so many steps.
  const AdamW slow{.beta2 = 1.0 - 0x1p-20};
  double last = bias2(slow, 1000);
  for (const std::uint64_t t : {std::uint64_t{100'000}, std::uint64_t{1'000'000}}) {
    EXPECT_GT(bias2(slow, t), last);
    last = bias2(slow, t);
  }
}

TEST(AdamWScalars, AskingAgainAdvancesNothing) {
  for (const std::uint64_t t : {std::uint64_t{1}, std::uint64_t{5}, kPast24Bits}) {
    const simd::AdamWScalars first = scalars(AdamW{}, t, 1.0);
    (void)scalars(AdamW{.beta2 = 0.5}, t + 7, 1.0);
    const simd::AdamWScalars again = scalars(AdamW{}, t, 1.0);
    EXPECT_EQ(first.step_size, again.step_size);
    EXPECT_EQ(first.inv_sqrt_bias2, again.inv_sqrt_bias2);
  }
}

TEST(StepCount, CountsPastWhatAFloatOrAnIntHolds) {
  pipeline::Parameter parameter;
  parameter.step_count = 16'777'215;
  for (int i = 0; i < 3; ++i) parameter.step_count += 1;
  EXPECT_EQ(parameter.step_count, kPast24Bits);
  parameter.step_count = 2'147'483'647;
  for (int i = 0; i < 2; ++i) parameter.step_count += 1;
  EXPECT_EQ(parameter.step_count, kPast31Bits);
}

TEST(IntegerPower, IsThePower) {
  EXPECT_EQ(integer_power(0.9, 0), 1.0);
  EXPECT_EQ(integer_power(0.0, 0), 1.0);
  EXPECT_EQ(integer_power(0.0, 1), 0.0);
  EXPECT_EQ(integer_power(0.999, 1), 0.999);
  EXPECT_EQ(integer_power(0.5, 10), 0x1p-10);
  EXPECT_EQ(integer_power(2.0, 63), 0x1p63);
  EXPECT_EQ(integer_power(-3.0, 3), -27.0);
  EXPECT_EQ(integer_power(1.0, UINT64_MAX), 1.0);
  EXPECT_EQ(integer_power(0.9, UINT64_MAX), 0.0);
}

/// Squaring doubles a relative error each time, so after t steps it is about t half-ulps.
TEST(IntegerPower, IsOffByTHalfUlpsAtMost) {
  for (const double base : {0.9, 0.95, 0.99, 0.999, 0.9999, 1.0 - 0x1p-20}) {
    for (const std::uint64_t t : steps_to_try()) {
      const long double want =
          std::pow(static_cast<long double>(base), static_cast<long double>(t));
      if (want < static_cast<long double>(DBL_MIN)) continue;
      const long double error = std::abs(integer_power(base, t) - want) / want;
      EXPECT_LE(error, static_cast<long double>(t) * 0x1p-53L) << base << '^' << t;
    }
  }
}

/// t = 2^24 + 2 needs its lowest bits: 2^(2^24 + 2) overflows, so a base near 1 shows them.
TEST(IntegerPower, UsesEveryBitOfTheExponent) {
  const double base = 1.0 - 0x1p-24;
  EXPECT_NEAR(integer_power(base, kPast24Bits) / integer_power(base, kPast24Bits - 2),
              1.0 - 0x1p-23, 0x1p-27);
  const double slower = 1.0 - 0x1p-26;
  EXPECT_LT(integer_power(slower, kPast31Bits), integer_power(slower, kPast31Bits - 2));
  EXPECT_LT(integer_power(slower, kPast32Bits), integer_power(slower, kPast31Bits));
}

}  // namespace
}  // namespace outboard::optim
