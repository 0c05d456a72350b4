// SPDX-License-Identifier: Apache-2.0
/// Worked examples of every rule, on every target.
#include "simd/rules/lamb_trust.hpp"
#include "tests/simd/update_support.hpp"

namespace outboard::simd::testing {
namespace {

class RulesOnEveryTarget : public OnEveryTarget {};
OUTBOARD_ON_EVERY_TARGET(RulesOnEveryTarget);

struct One {
  double param = 1.0;
  double state0 = 0.0;
  double state1 = 0.0;
};

/// One element through FP32 formats; also as the 37th of a shard of 40.
One stepped(const One& old, double grad, const RuleScalars& rule) {
  Tensor tensor(40, Format::f32, Format::f32);
  for (std::size_t i = 0; i < tensor.size(); ++i) {
    tensor.set_grad(i, std::bit_cast<std::uint32_t>(static_cast<float>(grad)));
    tensor.param[i] = static_cast<float>(old.param);
    tensor.state[0][i] = static_cast<float>(old.state0);
    tensor.state[1][i] = static_cast<float>(old.state1);
  }
  (void)full_step(tensor.shard(), rule);
  EXPECT_EQ(tensor.param[0], tensor.param[37]);
  EXPECT_EQ(tensor.weight_bits(0), std::bit_cast<std::uint32_t>(tensor.param[0]));
  return {tensor.param[0], tensor.state[0][0], tensor.state[1][0]};
}

void expect_one(const One& actual, const One& expected) {
  EXPECT_NEAR(actual.param, expected.param, 1e-6 * std::fabs(expected.param));
  EXPECT_NEAR(actual.state0, expected.state0, 1e-6 * std::fabs(expected.state0));
  EXPECT_NEAR(actual.state1, expected.state1, 1e-6 * std::fabs(expected.state1));
}

TEST_P(RulesOnEveryTarget, AdamWDecaysTheOldWeight) {
  const RuleScalars rule = make_scalars({.lr = 0.1, .weight_decay = 0.5});
  expect_one(stepped({}, 0.5, rule), {0.85, 0.05, 0.00025});
}

TEST_P(RulesOnEveryTarget, EpsIsAddedAfterTheBiasCorrection) {
  const RuleScalars plain = make_scalars({.weight_decay = 0.0});
  EXPECT_NEAR(1.0 - stepped({}, 1e-8, plain).param, 5.000e-4, 1e-7);
  const RuleScalars decayed = make_scalars({.weight_decay = 0.1});
  EXPECT_NEAR(1.0 - stepped({}, 1e-8, decayed).param, 6.000e-4, 1e-7);
}

// With decay in the gradient: g = 0.5 + 0.5 * 1 = 1, so the first step is lr itself.
TEST_P(RulesOnEveryTarget, AdamDecaysThroughTheMoments) {
  const RuleScalars rule = adam_scalars(any_hyper({.lr = 0.1, .weight_decay = 0.5}));
  expect_one(stepped({}, 0.5, rule), {0.9, 0.1, 0.001});
}

// g = 0.5 + 0.1 * 1 = 0.6; p = 1 - 0.1 * 0.6.
TEST_P(RulesOnEveryTarget, SgdWithoutMomentum) {
  const RuleScalars rule = sgd_scalars(any_hyper({.lr = 0.1, .weight_decay = 0.1}, 0.0));
  expect_one(stepped({}, 0.5, rule), {0.94, 0.0, 0.0});
}

// The buffer starts as the gradient, whatever it held and whatever the dampening.
TEST_P(RulesOnEveryTarget, SgdMomentumStartsAsTheFirstGradient) {
  const RuleScalars first = sgd_scalars(any_hyper({.lr = 0.1, .weight_decay = 0.0}, 0.9, 0.5));
  expect_one(stepped({1.0, 99.0, 0.0}, 0.5, first), {0.95, 0.5, 0.0});
}

// b = 0.9 * 0.5 + (1 - 0.5) * 1 = 0.95; p = 1 - 0.1 * 0.95.
TEST_P(RulesOnEveryTarget, SgdDampensTheLaterGradients) {
  const RuleScalars rule =
      sgd_scalars(any_hyper({.lr = 0.1, .weight_decay = 0.0, .step = 2}, 0.9, 0.5));
  expect_one(stepped({1.0, 0.5, 0.0}, 1.0, rule), {0.905, 0.95, 0.0});
}

// b = 0.9 * 0.5 + 1 = 1.45; u = 1 + 0.9 * 1.45 = 2.305; p = 1 - 0.1 * 2.305. On the first step
// b = g and u = 1.9 g.
TEST_P(RulesOnEveryTarget, SgdNesterovLooksAhead) {
  const RuleScalars rule =
      sgd_scalars(any_hyper({.lr = 0.1, .weight_decay = 0.0, .step = 2}, 0.9, 0.0, true));
  expect_one(stepped({1.0, 0.5, 0.0}, 1.0, rule), {0.7695, 1.45, 0.0});
  const RuleScalars first =
      sgd_scalars(any_hyper({.lr = 0.1, .weight_decay = 0.0}, 0.9, 0.0, true));
  expect_one(stepped({}, 1.0, first), {0.81, 1.0, 0.0});
}

// c = 0.9 * 0.2 + 0.1 * -1 = 0.08: up, so p = 1 - 0.01 * (0.1 * 1 + 1); m = 0.99 * 0.2 - 0.01.
TEST_P(RulesOnEveryTarget, LionStepsBySignAndKeepsTheOtherMean) {
  const RuleScalars rule =
      lion_scalars(any_hyper({.lr = 0.01, .beta1 = 0.9, .beta2 = 0.99, .weight_decay = 0.1}));
  expect_one(stepped({1.0, 0.2, 0.0}, -1.0, rule), {0.989, 0.188, 0.0});
  expect_one(stepped({1.0, -0.2, 0.0}, 1.0, rule), {1.009, -0.188, 0.0});
}

TEST_P(RulesOnEveryTarget, LionStandsStillWithoutDirection) {
  const RuleScalars rule = lion_scalars(any_hyper({.lr = 0.01, .weight_decay = 0.0}));
  for (const double grad : {0.0, -0.0}) {
    const One now = stepped({1.0, 0.0, 0.0}, grad, rule);
    EXPECT_EQ(now.param, 1.0);
    EXPECT_EQ(now.state0, 0.0);
  }
}

// sum = 4 + 3 * 3 = 13; p = 1 - 0.5 * 3 / sqrt(13). With decay 1: g = 4, sum = 20.
TEST_P(RulesOnEveryTarget, AdagradDividesByAllThereWas) {
  const Hyper hyper = {.lr = 0.5, .eps = 1e-10, .weight_decay = 0.0};
  expect_one(stepped({1.0, 4.0, 0.0}, 3.0, adagrad_scalars(any_hyper(hyper))),
             {1.0 - 1.5 / std::sqrt(13.0), 13.0, 0.0});
  Hyper decayed = hyper;
  decayed.weight_decay = 1.0;
  expect_one(stepped({1.0, 4.0, 0.0}, 3.0, adagrad_scalars(any_hyper(decayed))),
             {1.0 - 2.0 / std::sqrt(20.0), 20.0, 0.0});
}

// Four squares of 2^63 would be 2^128. Full, the sum stays, and a step of lr 0.5 is 0.5 * 2^63 /
// 2^64.
TEST_P(RulesOnEveryTarget, AdagradsSumStopsAtTheLargestFloat) {
  constexpr float kFull = std::numeric_limits<float>::max();
  const RuleScalars rule = adagrad_scalars(any_hyper({.lr = 0.5, .weight_decay = 0.0}));
  One now = {0.0, 0.0, 0.0};
  for (int step = 1; step <= 3; ++step) now = stepped(now, -0x1p63, rule);
  EXPECT_EQ(now.state0, 3 * 0x1p126);
  for (int step = 4; step <= 8; ++step) {
    const double before = now.param;
    now = stepped(now, -0x1p63, rule);
    EXPECT_EQ(now.state0, kFull) << "step " << step;
    EXPECT_NEAR(now.param - before, 0.25, 1e-6) << "step " << step;
  }
  // Decay of a huge weight alone may be more than any gradient.
  const RuleScalars decayed = adagrad_scalars(any_hyper({.lr = 0.5, .weight_decay = 1.0}));
  EXPECT_EQ(stepped({0x1p100, 0.0, 0.0}, 1.0, decayed).state0, kFull);
}

// Two elements, p = (3, 4), g = (1, -2), first step: m/d = (1, -1), u = (1.3, -0.6) with decay 0.1.
// ||p|| = 5, ||u|| = sqrt(2.05).
TEST_P(RulesOnEveryTarget, LambScalesTheUpdateByTheRatioOfNorms) {
  AnyHyper hyper = any_hyper({.lr = 0.1, .eps = 1e-12, .weight_decay = 0.1});
  Tensor tensor(2, Format::f32, Format::f32);
  tensor.param = {3.0F, 4.0F};
  tensor.set_grad(0, std::bit_cast<std::uint32_t>(1.0F));
  tensor.set_grad(1, std::bit_cast<std::uint32_t>(-2.0F));
  std::array<BlockNorms, 1> norms;
  lamb_moments(tensor.shard(), lamb_scalars(hyper), norms);
  EXPECT_EQ(norms[0].param, 25.0);
  EXPECT_NEAR(norms[0].update, 2.05, 1e-6);
  EXPECT_EQ(tensor.param[0], 3.0F);
  hyper.trust = std::sqrt(norms[0].param / norms[0].update);
  (void)update(tensor.shard(), lamb_scalars(hyper));
  EXPECT_NEAR(tensor.param[0], 3.0 - 0.1 * 5.0 / std::sqrt(2.05) * 1.3, 2e-6);
  EXPECT_NEAR(tensor.param[1], 4.0 + 0.1 * 5.0 / std::sqrt(2.05) * 0.6, 2e-6);
  EXPECT_NEAR(tensor.state[0][1], -0.2, 1e-7);
  EXPECT_NEAR(tensor.state[1][1], 0.004, 1e-9);
}

// -0 - +0 is -0, and -0 - -0 would be +0.
TEST_P(RulesOnEveryTarget, LambAtARateOfNegativeZeroKeepsEveryBit) {
  const std::array norms = {BlockNorms{25.0, 2.05}};
  LambScalars scalars = lamb_scalars(any_hyper({}));
  for (const auto& known : {std::span<const BlockNorms>(norms), std::span<const BlockNorms>()}) {
    scalars.lr_trust = lamb_lr_trust(-0.0, known);
    EXPECT_FALSE(std::signbit(scalars.lr_trust));
    EXPECT_TRUE(std::signbit(stepped({-0.0, 0.0, 0.0}, 0.0, scalars).param));
  }
}

TEST_P(RulesOnEveryTarget, LambNormsAreTheTreeOfTheSumOfSquares) {
  SCOPED_TRACE(seed_text());
  Random random(test_seed());
  const LambScalars scalars = lamb_scalars(any_hyper({.coeff = 1e-3}));
  for (const Format format : kFormats) {
    for (const std::size_t size : {1U, 63U, 64U, 4095U, 4096U, 4097U, 12'300U}) {
      Tensor tensor(size, format, Format::f16);
      fill_ordinary(tensor, random);
      std::vector<BlockNorms> norms(reduce_block_count(size));
      lamb_moments(tensor.shard(), scalars, norms);
      for (std::size_t block = 0; block < norms.size(); ++block) {
        const std::size_t first = block * kReduceBlockElems;
        const std::size_t count = std::min<std::size_t>(kReduceBlockElems, size - first);
        const auto params = std::span<const float>(tensor.param).subspan(first, count);
        EXPECT_EQ(norms[block].param, reduce_gradient(params).sum_of_squares);
        double sum = 0.0;
        double terms = 0.0;
        for (std::size_t i = first; i < first + count; ++i) {
          const double u = reference::lamb_update(scalars, tensor.param[i],
                                                  {0.0, {tensor.state[0][i], tensor.state[1][i]}});
          sum += u * u;
          // Where decay and step cancel, the error is one of theirs.
          const double decay = scalars.weight_decay * tensor.param[i];
          terms += std::pow(std::fabs(decay) + std::fabs(u - decay), 2);
        }
        EXPECT_NEAR(norms[block].update, sum, 1e-6 * terms);
      }
    }
  }
}

// In FP32 each step of 6e-4 is 10,066.33 ulp of a weight below 1 and is rounded alike: 2e-6 in all.
TEST_P(RulesOnEveryTarget, Bf16WeightsFollowTheirMastersForAHundredSteps) {
  Tensor tensor(33, Format::bf16, Format::bf16);
  for (std::size_t i = 0; i < tensor.size(); ++i) {
    tensor.param[i] = 1.0F;
    tensor.set_grad(i, 0x3F80);
  }
  for (int step = 1; step <= 100; ++step) {
    (void)update(tensor.shard(), make_scalars({.lr = 6e-4, .weight_decay = 0.0, .step = step}));
  }
  EXPECT_NEAR(tensor.param[32], 0.94, 2.5e-6);
  EXPECT_EQ(tensor.weight_bits(32), 0x3F71U);
}

TEST_P(RulesOnEveryTarget, SubnormalGradientsAreZeroInEveryFormatThatHasThem) {
  const LionScalars rule = lion_scalars(any_hyper({.lr = 0.5, .weight_decay = 0.0, .coeff = 1e30}));
  for (const Format format : {Format::bf16, Format::f32}) {
    const std::uint32_t shift = format == Format::bf16 ? 0U : 16U;
    Tensor tensor(3, format, Format::f32);
    tensor.set_grad(0, 0x007FU << shift);
    tensor.set_grad(1, 0x807FU << shift);
    tensor.set_grad(2, 0x0080U << shift);
    (void)update(tensor.shard(), rule);
    EXPECT_EQ(tensor.param[0], 0.0F);
    EXPECT_EQ(tensor.param[1], 0.0F);
    EXPECT_EQ(tensor.param[2], -0.5F);
  }
}

}  // namespace
}  // namespace outboard::simd::testing
