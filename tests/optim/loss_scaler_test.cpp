// SPDX-License-Identifier: Apache-2.0
#include "optim/loss_scaler.hpp"

#include <gtest/gtest.h>

namespace outboard::optim {
namespace {

TEST(LossScaler, StartsWhereItIsTold) {
  const LossScaler scaler({.initial_scale = 1024.0});
  EXPECT_EQ(scaler.scale(), 1024.0);
  EXPECT_EQ(scaler.clean_steps(), 0u);
  EXPECT_EQ(scaler.overflows_in_a_row(), 0u);
}

TEST(LossScaler, FallsToItsFloorAndRecovers) {
  LossScaler scaler({.initial_scale = 65536.0, .growth_interval = 10});
  for (int i = 0; i < 40; ++i) {
    const double before = scaler.scale();
    EXPECT_FALSE(scaler.overflow());
    EXPECT_EQ(scaler.scale(), before > 1.0 ? before / 2 : 1.0);
  }
  EXPECT_EQ(scaler.halvings_in_row(), 16u);
  EXPECT_EQ(scaler.overflows_in_a_row(), 40u);
  EXPECT_EQ(scaler.scale_before_row(), 65536.0);
  for (int i = 0; i < 25; ++i) scaler.clean_step();
  EXPECT_EQ(scaler.scale(), 4.0);
  EXPECT_EQ(scaler.clean_steps(), 5u);
}

TEST(LossScaler, KeepsAFloorOfAnotherHeight) {
  LossScaler scaler({.initial_scale = 64.0, .min_scale = 0.25});
  for (int i = 0; i < 20; ++i) scaler.overflow();
  EXPECT_EQ(scaler.scale(), 0.25);
  EXPECT_EQ(scaler.halvings_in_row(), 8u);
}

TEST(LossScaler, GrowsAfterTheInterval) {
  LossScaler scaler({.initial_scale = 8.0, .growth_interval = 3, .max_scale = 32.0});
  for (const double want : {8.0, 8.0, 16.0, 16.0, 16.0, 32.0, 32.0, 32.0, 32.0}) {
    scaler.clean_step();
    EXPECT_EQ(scaler.scale(), want);
  }
}

TEST(LossScaler, AnOverflowStartsTheIntervalAgain) {
  LossScaler scaler({.initial_scale = 8.0, .growth_interval = 3});
  scaler.clean_step();
  scaler.clean_step();
  scaler.overflow();
  EXPECT_EQ(scaler.scale(), 4.0);
  scaler.clean_step();
  scaler.clean_step();
  EXPECT_EQ(scaler.scale(), 4.0);
  scaler.clean_step();
  EXPECT_EQ(scaler.scale(), 8.0);
}

TEST(LossScaler, ARowIsAsLongAsNothingIsClean) {
  LossScaler scaler({.initial_scale = 64.0, .give_up_after = 3});
  EXPECT_FALSE(scaler.overflow());
  EXPECT_FALSE(scaler.overflow());
  scaler.clean_step();
  EXPECT_EQ(scaler.overflows_in_a_row(), 0u);
  // What the last row was stays known until the next one.
  EXPECT_EQ(scaler.scale_before_row(), 64.0);
  EXPECT_EQ(scaler.halvings_in_row(), 2u);
  EXPECT_FALSE(scaler.overflow());
  EXPECT_EQ(scaler.scale_before_row(), 16.0);
  EXPECT_EQ(scaler.halvings_in_row(), 1u);
  EXPECT_FALSE(scaler.overflow());
  EXPECT_TRUE(scaler.overflow());
  EXPECT_TRUE(scaler.overflow());
}

TEST(LossScaler, AFixedScaleStaysAndGivesUpToo) {
  LossScaler scaler(
      {.dynamic = false, .initial_scale = 4.0, .growth_interval = 1, .give_up_after = 2});
  scaler.clean_step();
  EXPECT_FALSE(scaler.overflow());
  EXPECT_EQ(scaler.scale(), 4.0);
  EXPECT_EQ(scaler.halvings_in_row(), 0u);
  EXPECT_TRUE(scaler.overflow());
}

/// Where the search starts decides how many steps it costs.
TEST(LossScaler, TheDefaultStartCostsFewSteps) {
  const auto skips_down_to = [](double limit, LossScaling settings) {
    LossScaler scaler(settings);
    int skips = 0;
    for (; scaler.scale() > limit; ++skips) scaler.overflow();
    return skips;
  };
  EXPECT_EQ(skips_down_to(0x1p15, {}), 1);
  EXPECT_EQ(skips_down_to(0x1p8, {}), 8);
  EXPECT_EQ(skips_down_to(0x1p15, {.initial_scale = 0x1p32, .max_scale = 0x1p32}), 17);
}

}  // namespace
}  // namespace outboard::optim
