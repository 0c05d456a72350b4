// SPDX-License-Identifier: Apache-2.0
/// AdamW's golden bits and worked examples.
#include "simd/digest.hpp"
#include "tests/simd/simd_support.hpp"

namespace outboard::simd::testing {
namespace {

class AdamWOnEveryTarget : public OnEveryTarget {};
OUTBOARD_ON_EVERY_TARGET(AdamWOnEveryTarget);

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
