// SPDX-License-Identifier: Apache-2.0
#include "simd/adamw.hpp"

#include "simd/digest.hpp"
#include "tests/simd/simd_support.hpp"

namespace outboard::simd::testing {
namespace {

using reference::TwoTerms;

class AdamWOnEveryTarget : public OnEveryTarget {};
OUTBOARD_ON_EVERY_TARGET(AdamWOnEveryTarget);

/// Within `ulps` of the larger of the terms, or infinite where a float has to be.
::testing::AssertionResult near(float actual, double expected, double scale, double ulps) {
  if (std::fabs(expected) > static_cast<double>(FLT_MAX)) {
    if (std::isinf(actual) || std::fabs(actual) == FLT_MAX) return ::testing::AssertionSuccess();
  } else if (std::fabs(static_cast<double>(actual) - expected) <= ulps * ulp(scale)) {
    return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure()
         << actual << " is not " << expected << ": off by "
         << (static_cast<double>(actual) - expected) / ulp(scale) << " ulp of " << scale;
}

/// Every line of every element, each from the kernel's own results of the lines before.
void expect_each_line(const State& old, const State& now, const AdamWScalars& s) {
  for (std::size_t i = 0; i < old.size(); ++i) {
    SCOPED_TRACE("element " + std::to_string(i) + " p " + std::to_string(old.param[i]) + " m " +
                 std::to_string(old.exp_avg[i]) + " v " + std::to_string(old.exp_avg_sq[i]) +
                 " g " + std::to_string(reference::half_value(old.grad[i])));
    const auto grad = static_cast<double>(reference::gradient(old.grad[i], s));
    const TwoTerms m = reference::exp_avg(old.exp_avg[i], grad, s);
    ASSERT_TRUE(near(now.exp_avg[i], m.sum(), m.larger(), 4.0));
    const TwoTerms v = reference::exp_avg_sq(old.exp_avg_sq[i], grad, s);
    ASSERT_TRUE(near(now.exp_avg_sq[i], v.sum(), v.sum(), 4.0));
    const TwoTerms u = reference::update(old.param[i], now.exp_avg[i], now.exp_avg_sq[i], s);
    const auto p = static_cast<double>(old.param[i]);
    // A quotient m/d below the subnormals is lost whole: at most 2^-150 of it, times the step size.
    const double lost = static_cast<double>(s.step_size) * 0x1p-150;
    const double scale = std::fmax(std::fabs(p), std::fabs(u.sum()));
    ASSERT_TRUE(near(now.param[i], p - u.sum(), scale, 8.0 + lost / ulp(scale)));
  }
}

const std::vector<Hyper>& hypers() {
  static const std::vector<Hyper> list = {
      {},
      {.step = 1000, .coeff = 1.0 / 65536.0},
      {.lr = 0.1, .weight_decay = 0.5, .coeff = 0.37},
      {.lr = 2e-6, .weight_decay = 0.01, .step = 20000, .coeff = 1e-6},
      {.beta1 = 0.0, .beta2 = 0.5, .step = 3, .coeff = 0x1p-24},
      {.beta1 = 0.95,
       .beta2 = 0.9999,
       .eps = 1e-15,
       .weight_decay = 0.0,
       .step = 7,
       .coeff = 0x1p-90},
      {.lr = 1.0, .beta1 = 0.999, .beta2 = 0.99, .eps = 1e-3, .step = 2, .coeff = 1e-12},
  };
  return list;
}

std::vector<float> with_signs(std::vector<float> values) {
  const std::size_t size = values.size();
  for (std::size_t i = 0; i < size; ++i) values.push_back(-values[i]);
  return values;
}

/// Values chosen to hurt each operand, mixed at random so that each meets each.
State adversarial_state(Random& random, std::size_t size, const AdamWScalars& s) {
  const float tiny = 0x1p-100F;
  const std::vector<float> params = with_signs(
      {0.0F, FLT_TRUE_MIN, 0x1.8p-130F, std::nextafter(FLT_MIN, 0.0F), FLT_MIN,
       std::nextafter(tiny, 0.0F), tiny, 1e-8F, 0x1p-24F, 0x1p-25F, 0x1.8p-25F, 1.0F, 2048.5F,
       65504.0F, std::nextafter(65520.0F, 0.0F), 65520.0F, 65536.0F, 1e30F, 3e38F});
  const std::vector<float> moments =
      with_signs({0.0F, FLT_TRUE_MIN, 0x1.234p-127F, FLT_MIN, std::nextafter(tiny, 0.0F), tiny,
                  1e-20F, 1e-3F, 1.0F, 65504.0F, 1e30F});
  const std::vector<float> squares = {0.0F,
                                      FLT_TRUE_MIN,
                                      0x1.8p-127F,
                                      FLT_MIN,
                                      std::nextafter(s.exp_avg_sq_floor, 0.0F),
                                      s.exp_avg_sq_floor,
                                      std::nextafter(s.exp_avg_sq_floor, 1.0F),
                                      1e-30F,
                                      1e-8F,
                                      1.0F,
                                      4e9F,
                                      1e37F};
  const std::vector<std::uint16_t> halves = {0x0000, 0x8000, 0x0001, 0x8001, 0x03FF,
                                             0x0400, 0x83FF, 0x8400, 0x3C00, 0xBC00,
                                             0x7BFF, 0xFBFF, 0x3555, 0x1001};
  State state(size);
  for (std::size_t i = 0; i < size; ++i) {
    const bool listed = random.below(4) != 0;
    state.param[i] = listed ? random.pick(params) : random.spread(-149, 100);
    state.exp_avg[i] = listed ? random.pick(moments) : random.spread(-149, 60);
    state.exp_avg_sq[i] = listed ? random.pick(squares) : std::fabs(random.spread(-149, 100));
    state.grad[i] = listed ? random.pick(halves) : random.finite_half();
    if (random.below(8) == 0) {
      // The two terms of m all but cancel.
      const double grad = reference::gradient(state.grad[i], s);
      const double cancelling = -grad * static_cast<double>(s.one_minus_beta1) / s.beta1;
      if (s.beta1 > 0.0F) {
        state.exp_avg[i] = std::nextafter(static_cast<float>(cancelling),
                                          static_cast<float>(random.below(3)) - 1.0F);
      }
    }
  }
  return state;
}

TEST_P(AdamWOnEveryTarget, EachLineIsCloseToDoubleOnOrdinaryValues) {
  SCOPED_TRACE(seed_text());
  Random random(test_seed());
  for (const Hyper& hyper : hypers()) {
    const AdamWScalars s = make_scalars(hyper);
    const State old = ordinary_state(random, 20'003);
    State now = old;
    (void)adamw_step(now.shard(), s);
    ASSERT_NO_FATAL_FAILURE(expect_each_line(old, now, s));
  }
}

TEST_P(AdamWOnEveryTarget, EachLineIsCloseToDoubleOnValuesChosenToHurt) {
  SCOPED_TRACE(seed_text());
  Random random(test_seed() + 1);
  for (const Hyper& hyper : hypers()) {
    const AdamWScalars s = make_scalars(hyper);
    const State old = adversarial_state(random, 40'009, s);
    State now = old;
    (void)adamw_step(now.shard(), s);
    ASSERT_NO_FATAL_FAILURE(expect_each_line(old, now, s));
  }
}

TEST(AdamWTargets, AgreeBitForBit) {
  SCOPED_TRACE(seed_text());
  Random random(test_seed() + 2);
  for (const Hyper& hyper : hypers()) {
    const AdamWScalars s = make_scalars(hyper);
    for (const bool hurting : {false, true}) {
      const State old =
          hurting ? adversarial_state(random, 30'011, s) : ordinary_state(random, 30'011);
      State first(0);
      std::uint64_t first_overflows = 0;
      for (const std::string& target : supported_targets()) {
        ASSERT_TRUE(force_target(target));
        State now = old;
        std::uint64_t overflows = 0;
        for (int step = 0; step < 3; ++step) overflows += adamw_step(now.shard(), s);
        if (first.size() == 0) first = now, first_overflows = overflows;
        EXPECT_TRUE(same_result(now, first)) << target;
        EXPECT_EQ(overflows, first_overflows) << target;
      }
    }
  }
  ASSERT_TRUE(force_target(""));
}

// Numbers that no compiler, flag or target may move.
TEST_P(AdamWOnEveryTarget, TenStepsGiveTheseBits) {
  Random random(20'260'731);
  State state = ordinary_state(random, 5'003);
  for (int step = 1; step <= 10; ++step) {
    for (std::uint16_t& grad : state.grad) grad = random.finite_half();
    AdamWScalars s = make_scalars({});
    s.coeff = 0x1p-12F;
    s.step_size = 1e-3F * static_cast<float>(step);
    (void)adamw_step(state.shard(), s);
  }
  std::uint64_t weights = 0;
  for (const std::uint16_t half : state.weight) weights = weights * 0x100000001B3U + half;
  EXPECT_EQ(digest_state({.parameter = 0,
                          .first_element = 0,
                          .param = state.param,
                          .state = {state.exp_avg, state.exp_avg_sq}}),
            0x84496AE5225AE1F3U);
  EXPECT_EQ(weights, 0x02A5385CA269FA89U);
}

TEST_P(AdamWOnEveryTarget, WorkedExampleWithDecay) {
  State state(1);
  state.param[0] = 1.0F;
  state.grad[0] = 0x3800;  // 0.5
  (void)adamw_step(state.shard(), make_scalars({.lr = 0.1, .weight_decay = 0.5}));
  EXPECT_NEAR(state.param[0], 0.85, 1e-6);
  EXPECT_NEAR(state.exp_avg[0], 0.05, 1e-6);
  EXPECT_NEAR(state.exp_avg_sq[0], 0.00025, 1e-6 * 0.00025 * 4);
}

TEST_P(AdamWOnEveryTarget, WorkedExampleWithGradientAsSmallAsEps) {
  State state(1);
  state.param[0] = 1.0F;
  state.grad[0] = 0x3C00;  // 1, scaled to 1e-8
  Hyper hyper{.lr = 1e-3, .eps = 1e-8, .weight_decay = 0.0};
  hyper.coeff = 1e-8;
  (void)adamw_step(state.shard(), make_scalars(hyper));
  EXPECT_NEAR(1.0 - static_cast<double>(state.param[0]), 5.0e-4, 1e-7);
}

TEST_P(AdamWOnEveryTarget, WeightIsTheMasterRoundedAndOverflowsAreCounted) {
  const std::vector<float> masters = {1.0F,   65504.0F, 65519.996F, 65520.0F, -65520.0F, 1e38F,
                                      -1e38F, 0.0F,     -0.0F,      0x1p-24F, 0x1p-25F,  3.0F};
  const std::vector<std::uint16_t> halves = {0x3C00, 0x7BFF, 0x7BFF, 0x7C00, 0xFC00, 0x7C00,
                                             0xFC00, 0x0000, 0x8000, 0x0001, 0x0000, 0x4200};
  for (const std::size_t copies : {std::size_t{1}, std::size_t{2}, std::size_t{37}}) {
    State state(masters.size() * copies);
    for (std::size_t i = 0; i < state.size(); ++i) state.param[i] = masters[i % masters.size()];
    const std::vector<float> before = state.param;
    Hyper hyper;
    hyper.weight_decay = 0.0;
    EXPECT_EQ(adamw_step(state.shard(), make_scalars(hyper)), 4 * copies);
    EXPECT_TRUE(same_bits(state.param, before));
    for (std::size_t i = 0; i < state.size(); ++i) {
      ASSERT_EQ(state.weight[i], halves[i % halves.size()]) << state.param[i];
    }
  }
}

}  // namespace
}  // namespace outboard::simd::testing
