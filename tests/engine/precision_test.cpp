// SPDX-License-Identifier: Apache-2.0
/// What a step means, in every element type and in every way an engine can run: clipping,
/// accumulation, FP32 state, step counts.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "engine/precisions.hpp"
#include "support/manual_trainer.hpp"

namespace outboard::testing {
namespace {

using State = ManualTrainer::State;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

class InPrecision : public ::testing::TestWithParam<PreciseFlavour> {
 protected:
  [[nodiscard]] static const Flavour& flavour() { return std::get<0>(GetParam()); }
  [[nodiscard]] static const Precision& precision() { return std::get<1>(GetParam()); }

  void make(const Config& config = precision().config()) { make(config, flavour()); }
  void make(const Config& config, const Flavour& way) {
    trainer_.emplace(way.apply(config), way.device());
    t().dtype = precision().dtype;
  }
  ManualTrainer& t() { return trainer_.value(); }
  Engine& engine() { return *t().engine; }
  /// As the backward leaves it.
  [[nodiscard]] static std::vector<float> scaled(std::vector<float> gradient) {
    for (float& g : gradient) g *= static_cast<float>(precision().loss_scale);
    return gradient;
  }
  void expect_state(ParameterId id, std::size_t element, double m, double v) {
    const State state = t().state(id);
    EXPECT_NEAR(state.m[element], m, m * 1e-5);
    EXPECT_NEAR(state.v[element], v, v * 1e-5);
  }
  std::optional<ManualTrainer> trainer_;
};
INSTANTIATE_TEST_SUITE_P(Ways, InPrecision, all_precise_flavours(),
                         [](const auto& test) { return precise_flavour_name(test.param); });

TEST_P(InPrecision, ClippingIsAppliedOnceAfterUnscaling) {
  for (const double limit : {1.0, 0.0, kInfinity}) {
    SCOPED_TRACE(limit);
    Config config = precision().config();
    config.max_grad_norm = limit;
    make(config);
    const GroupId group = engine().add_group({.lr = 0.1});
    const ParameterId three = t().add("three", {1.0F}, group);
    const ParameterId four = t().add("four", {1.0F}, group);
    engine().commit();
    const StepResult result = t().step({{three, scaled({3.0F})}, {four, scaled({4.0F})}});
    EXPECT_DOUBLE_EQ(result.grad_norm, 5.0);
    if (limit == 1.0) {
      EXPECT_NEAR(result.clip, 0.2, 1e-7);
      expect_state(three, 0, 0.06, 3.6e-4);
      expect_state(four, 0, 0.08, 6.4e-4);
    } else {
      EXPECT_EQ(result.clip, 1.0);
      expect_state(three, 0, 0.3, 9e-3);
      expect_state(four, 0, 0.4, 16e-3);
    }
  }
}

/// The mean of 8, 4 and of -2, -4, at a limit of 1: the norm is the accumulated gradient's.
TEST_P(InPrecision, ClippingTakesTheAccumulatedGradient) {
  Config config = precision().config();
  config.max_grad_norm = 1.0;
  config.accumulation = 2;
  Flavour way = flavour();
  way.accumulate = Accumulate::host;
  make(config, way);
  const GroupId group = engine().add_group({.lr = 0.1});
  const ParameterId w = t().add("w", {1.0F, 1.0F}, group);
  engine().commit();
  const StepResult result = t().step({{w, scaled({8.0F, 12.0F})}, {w, scaled({-2.0F, -4.0F})}});
  EXPECT_DOUBLE_EQ(result.grad_norm, 5.0);
  expect_state(w, 0, 0.06, 3.6e-4);
  expect_state(w, 1, 0.08, 6.4e-4);
}

/// Micro-gradients 1, 2, 3, 4 in the first step and -1, -1 in the second. Where only the last
/// were kept p would be 0.8530532, the first 0.9052632.
class Accumulated : public InPrecision {
 protected:
  struct Want {
    double p, m, v, first_norm, second_norm;
  };
  /// `divisors`: of the two steps.
  void expect_accumulated(std::uint32_t first, std::uint32_t second, const Want& want) {
    Config config = precision().config();
    config.accumulation = first;
    Flavour way = flavour();
    way.accumulate = Accumulate::host;
    make(config, way);
    const GroupId group = engine().add_group({.lr = 0.1});
    const ParameterId w = t().add("w", {1.0F}, group);
    engine().commit();
    const StepResult one =
        t().step({{w, scaled({1})}, {w, scaled({2})}, {w, scaled({3})}, {w, scaled({4})}});
    EXPECT_DOUBLE_EQ(one.grad_norm, want.first_norm);
    engine().set_accumulation(second);
    const StepResult two = t().step({{w, scaled({-1})}, {w, scaled({-1})}});
    EXPECT_DOUBLE_EQ(two.grad_norm, want.second_norm);
    const State state = t().state(w);
    EXPECT_NEAR(state.p[0], want.p, 2e-7);
    EXPECT_NEAR(state.m[0], want.m, want.m * 1e-6);
    EXPECT_NEAR(state.v[0], want.v, want.v * 1e-6);
    EXPECT_EQ(state.t, 2u);
  }
};
INSTANTIATE_TEST_SUITE_P(Ways, Accumulated, all_precise_flavours(),
                         [](const auto& test) { return precise_flavour_name(test.param); });

TEST_P(Accumulated, TheMeanOfMicroBatches) {
  expect_accumulated(4, 2, {0.8654394, 0.125, 0.00724375, 2.5, 1.0});
}

/// The number of micro-batches is configured as 1 and four come.
TEST_P(Accumulated, TheirSumWhereOneIsConfigured) {
  expect_accumulated(1, 1, {0.8488974, 0.7, 0.1039, 10.0, 2.0});
}

/// That `p` is 1 after 100 steps of `lr` down: what plain float arithmetic makes of it, and so
/// within a hundred of its roundings, 2^-25 each, of the exact value.
void expect_walked(float p, double lr) {
  float plain = 1.0F;
  for (int i = 0; i < 100; ++i) plain -= static_cast<float>(lr);
  EXPECT_NEAR(p, plain, 0x1p-23);
  EXPECT_NEAR(static_cast<double>(p), 1.0 - 100.0 * lr, 100 * 0x1p-25);
}

TEST_P(InPrecision, MastersKeepStepsThatTheWeightWouldLose) {
  make();
  const GroupId group = engine().add_group({.lr = precision().lost_step});
  const ParameterId w = t().add("w", {1.0F}, group);
  engine().commit();
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(t().step({{w, scaled({1.0F})}}).applied());
  const State state = t().state(w);
  expect_walked(state.p[0], precision().lost_step);
  EXPECT_EQ(state.weight[0], precision().bits_after_100_steps);
  // More bits than a 16-bit type has, in every stream.
  EXPECT_NEAR(state.m[0], 1.0 - std::pow(0.9, 100.0), 1e-6);
  EXPECT_NEAR(state.v[0], 1.0 - std::pow(0.999, 100.0), 1e-7);
}

TEST_P(InPrecision, MastersTakeLargerStepsToo) {
  make();
  const GroupId group = engine().add_group({.lr = 6e-4});
  const ParameterId w = t().add("w", {1.0F}, group);
  engine().commit();
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(t().step({{w, scaled({1.0F})}}).applied());
  expect_walked(t().state(w).p[0], 6e-4);
}

/// 1e-10 is far below the smallest half.
TEST_P(InPrecision, MomentsAreFloatsHoweverSmall) {
  make();
  const GroupId group = engine().add_group({.lr = 1e-3});
  const ParameterId w = t().add("w", {1.0F}, group);
  engine().commit();
  ASSERT_TRUE(t().step({{w, scaled({0x1p-12F})}}).applied());
  expect_state(w, 0, 0.1 * 0x1p-12, 1e-3 * 0x1p-24);
}

TEST_P(InPrecision, StateTakesFourBytesForEachOfItsStreams) {
  make();
  constexpr std::size_t kElems = 5000;
  const GroupId group = engine().add_group({});
  t().add("w", std::vector<float>(kElems, 1.0F), group);
  engine().commit();
  const MemoryLedger ledger = engine().ledger();
  for (const char* purpose : {"master weight", "exp_avg", "exp_avg_sq"}) {
    std::size_t bytes = 0;
    for (const LedgerEntry& entry : ledger.entries) {
      if (entry.purpose == purpose) bytes += entry.bytes;
    }
    EXPECT_GE(bytes, 4 * kElems) << purpose;
  }
}

/// A count in the weights' type would stick: at 256 in bfloat16, at 2,048 in half.
TEST_P(InPrecision, TheStepCountGoesOn) {
  make();
  const GroupId group = engine().add_group({.lr = 1e-3});
  const ParameterId w = t().add("w", {1.0F}, group);
  engine().commit();
  double p = 1.0, m = 0.0, v = 0.0;
  for (int step = 1; step <= 300; ++step) {
    const float g = step % 2 == 0 ? 0.5F : 1.0F;
    ASSERT_EQ(t().step({{w, scaled({g})}}).step, static_cast<std::uint64_t>(step));
    m = 0.9 * m + 0.1 * static_cast<double>(g);
    v = 0.999 * v + 0.001 * static_cast<double>(g * g);
    const double root = std::sqrt(v / (1.0 - std::pow(0.999, step)));
    p -= 1e-3 * (m / (1.0 - std::pow(0.9, step))) / (root + 1e-8);
  }
  EXPECT_EQ(engine().step_count(w), 300u);
  EXPECT_NEAR(1.0 - std::pow(0.999, 300.0), 0.2592930, 1e-7);
  const State state = t().state(w);
  // Stuck at 256 the last steps would be 7 % too large.
  EXPECT_NEAR(state.p[0], p, 5e-6);
  EXPECT_NEAR(state.v[0], v, v * 1e-5);
}

}  // namespace
}  // namespace outboard::testing
