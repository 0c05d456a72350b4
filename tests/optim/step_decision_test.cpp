// SPDX-License-Identifier: Apache-2.0
#include "optim/step_decision.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace outboard::optim {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(StepDecision, UnscalesTheNormAndClipsOnce) {
  // 3 and 4, times a scale of 1,024.
  const GradientTotals totals{.sum_of_squares = 25.0 * 1024 * 1024};
  const StepDecision decision = decide_step(totals, 1024.0, 1.0);
  EXPECT_FALSE(decision.overflow);
  EXPECT_EQ(decision.grad_norm, 5.0);
  EXPECT_EQ(decision.clip, 1.0 / (5.0 + 1e-6));
  EXPECT_EQ(decision.coeff, decision.clip / 1024.0);
}

TEST(StepDecision, DoesNotClipWithoutALimit) {
  for (const double limit : {0.0, kInfinity}) {
    const StepDecision decision = decide_step({.sum_of_squares = 25.0}, 1.0, limit);
    EXPECT_EQ(decision.grad_norm, 5.0) << limit;
    EXPECT_EQ(decision.clip, 1.0) << limit;
    EXPECT_EQ(decision.coeff, 1.0) << limit;
  }
}

TEST(StepDecision, NeverMakesAGradientLarger) {
  for (const double norm : {0.0, 0x1p-80, 0.5, 1.0 - 1e-6}) {
    EXPECT_EQ(decide_step({.sum_of_squares = norm * norm}, 1.0, 1.0).clip, 1.0) << norm;
  }
  EXPECT_LT(decide_step({.sum_of_squares = 1.0}, 1.0, 1.0).clip, 1.0);
}

TEST(StepDecision, DividesByScaleAndMicroBatches) {
  const StepDecision decision = decide_step({.sum_of_squares = 100.0}, 8.0 * 4.0, 0.0);
  EXPECT_EQ(decision.grad_norm, 10.0 / 32.0);
  EXPECT_EQ(decision.coeff, 1.0 / 32.0);
}

TEST(StepDecision, NonFiniteElementsOverflowWhateverTheLimit) {
  for (const double limit : {0.0, 1.0, kInfinity}) {
    const StepDecision inf = decide_step({.sum_of_squares = 4.0, .any_inf = true}, 2.0, limit);
    EXPECT_TRUE(inf.overflow);
    EXPECT_EQ(inf.grad_norm, kInfinity);
    const StepDecision nan = decide_step({.sum_of_squares = 4.0, .any_nan = true}, 2.0, limit);
    EXPECT_TRUE(nan.overflow);
    EXPECT_TRUE(std::isnan(nan.grad_norm));
    const StepDecision both = decide_step({.any_inf = true, .any_nan = true}, 2.0, limit);
    EXPECT_TRUE(both.overflow);
    EXPECT_TRUE(std::isnan(both.grad_norm));
  }
}

TEST(StepDecision, ANormOfTwoToThe63Overflows) {
  const StepDecision at = decide_step({.sum_of_squares = 0x1p126}, 1.0, 1.0);
  EXPECT_TRUE(at.overflow);
  EXPECT_EQ(at.grad_norm, 0x1p63);
  const double below = std::nextafter(0x1p63, 0.0);
  EXPECT_FALSE(decide_step({.sum_of_squares = below * below}, 1.0, 1.0).overflow);
  // The unscaled norm counts.
  EXPECT_FALSE(decide_step({.sum_of_squares = 0x1p126}, 2.0, 1.0).overflow);
  EXPECT_TRUE(decide_step({.sum_of_squares = 0x1p124}, 0.5, 1.0).overflow);
}

}  // namespace
}  // namespace outboard::optim
