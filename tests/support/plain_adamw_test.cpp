// SPDX-License-Identifier: Apache-2.0
/// The plain optimizer against numbers worked out by hand.
#include "support/plain_adamw.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace outboard::testing {
namespace {

PlainAdamW::Options fixed(double scale) {
  PlainAdamW::Options options;
  options.loss_scaling.dynamic = false;
  options.loss_scaling.initial_scale = scale;
  return options;
}

TEST(PlainAdamW, OneStepDecaysTheOldWeight) {
  PlainAdamW plain({{.lr = 0.1, .weight_decay = 0.5}}, fixed(1.0));
  plain.add({1.0});
  plain.step({{{0.5}}});
  EXPECT_NEAR(plain.parameter(0).p[0], 0.85, 1e-7);
  EXPECT_NEAR(plain.parameter(0).m[0], 0.05, 1e-12);
  EXPECT_NEAR(plain.parameter(0).v[0], 0.00025, 1e-12);
}

TEST(PlainAdamW, FollowsAChangedBeta2) {
  PlainAdamW plain({{.lr = 0.1}}, fixed(1.0));
  plain.add({1.0});
  for (const double g : {0.5, 0.25, 0.125}) plain.step({{{g}}});
  plain.set_group(0, {.lr = 0.1, .beta2 = 0.99});
  plain.step({{{1.0}}});
  EXPECT_NEAR(plain.parameter(0).p[0], 0.6271032, 1e-7);
  EXPECT_EQ(plain.parameter(0).t, 4u);
}

TEST(PlainAdamW, ClipsOnceAfterUnscaling) {
  PlainAdamW::Options options = fixed(1024.0);
  options.max_grad_norm = 1.0;
  PlainAdamW plain({{}}, options);
  plain.add({1.0});
  plain.add({1.0});
  plain.add({1.0});
  const PlainAdamW::Result result = plain.step({{{3072.0}}, {{4096.0}}, std::nullopt});
  EXPECT_NEAR(result.grad_norm, 5.0, 1e-12);
  EXPECT_NEAR(plain.parameter(0).m[0], 0.06, 1e-6);
  EXPECT_NEAR(plain.parameter(1).v[0], 6.4e-4, 1e-8);
  EXPECT_EQ(plain.parameter(2).t, 0u);
}

TEST(PlainAdamW, SkipsOnOverflowAndMovesTheScale) {
  PlainAdamW::Options options;
  options.loss_scaling.initial_scale = 8.0;
  options.loss_scaling.growth_interval = 2;
  PlainAdamW plain({{}}, options);
  plain.add({1.0});
  EXPECT_TRUE(plain.step({{{std::numeric_limits<double>::infinity()}}}).skipped);
  EXPECT_EQ(plain.loss_scale(), 4.0);
  EXPECT_EQ(plain.parameter(0).t, 0u);
  plain.step({{{1.0}}});
  plain.step({{{1.0}}});
  EXPECT_EQ(plain.loss_scale(), 8.0);
}

}  // namespace
}  // namespace outboard::testing
