// SPDX-License-Identifier: Apache-2.0
/// What one step does to the state, in every way an engine can run.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "engine/flavours.hpp"
#include "simd/target.hpp"
#include "support/expect_error.hpp"
#include "support/manual_trainer.hpp"
#include "support/tiny_trainer.hpp"

namespace outboard::testing {
namespace {

using State = ManualTrainer::State;
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// Loss scale fixed at `scale`.
Config fixed_scale(double scale) {
  Config config;
  config.loss_scaling.dynamic = false;
  config.loss_scaling.initial_scale = scale;
  return config;
}

void expect_near_relative(double got, double want, double tolerance, const char* what) {
  EXPECT_NEAR(got, want, std::abs(want) * tolerance) << what;
}

class Semantics : public ::testing::TestWithParam<Flavour> {
 protected:
  void make(const Config& config = fixed_scale(1.0)) {
    trainer_.emplace(GetParam().apply(config), GetParam().device());
  }
  ManualTrainer& t() { return trainer_.value(); }
  Engine& engine() { return *t().engine; }
  std::optional<ManualTrainer> trainer_;
};
INSTANTIATE_TEST_SUITE_P(Ways, Semantics, ::testing::ValuesIn(all_flavours()),
                         [](const auto& test) { return flavour_name(test.param); });

TEST_P(Semantics, BiasCorrectionFollowsAChangedBeta2) {
  make();
  AdamW settings{.lr = 0.1};
  const GroupId group = engine().add_group(settings);
  const ParameterId w = t().add("w", {1.0F}, group);
  engine().commit();
  for (const float g : {0.5F, 0.25F, 0.125F}) EXPECT_TRUE(t().step({{w, {g}}}).applied());
  settings.beta2 = 0.99;
  engine().set_group(group, settings);
  t().step({{w, {1.0F}}});
  const State state = t().state(w);
  // 0.6921365 would mean that powers of the old beta2 were carried on.
  expect_near_relative(state.p[0], 0.6271032, 1e-6, "p");
  EXPECT_EQ(state.t, 4u);
}

/// The state of 4,096 elements after 5 steps, when they are `pieces` parameters.
State state_in_pieces(const Flavour& flavour, std::uint32_t pieces) {
  ManualTrainer trainer(flavour.apply(fixed_scale(1.0)), flavour.device());
  const GroupId group = trainer.engine->add_group({.lr = 0.01, .weight_decay = 0.1});
  std::vector<ParameterId> ids;
  const auto border = [pieces](std::uint32_t i) { return std::size_t{4096} * i / pieces; };
  const auto slice = [&](std::uint32_t i, std::uint64_t seed) {
    std::vector<float> values;
    for (std::size_t e = border(i); e < border(i + 1); ++e) {
      values.push_back(mixed_unit(seed, 0, e));
    }
    return values;
  };
  for (std::uint32_t i = 0; i < pieces; ++i) {
    ids.push_back(trainer.add("piece" + std::to_string(i), slice(i, 99), group));
  }
  trainer.engine->commit();
  for (std::uint64_t step = 0; step < 5; ++step) {
    ManualTrainer::Gradients gradients;
    for (std::uint32_t i = 0; i < pieces; ++i) gradients.emplace_back(ids[i], slice(i, step));
    trainer.step(gradients);
  }
  State all;
  for (const ParameterId id : ids) {
    const State part = trainer.state(id);
    all.p.insert(all.p.end(), part.p.begin(), part.p.end());
    all.m.insert(all.m.end(), part.m.begin(), part.m.end());
    all.v.insert(all.v.end(), part.v.begin(), part.v.end());
    all.weight.insert(all.weight.end(), part.weight.begin(), part.weight.end());
    all.t = part.t;
  }
  return all;
}

TEST_P(Semantics, PiecesOfOneStepShareOneBiasCorrection) {
  const State whole = state_in_pieces(GetParam(), 1);
  EXPECT_EQ(whole.t, 5u);
  for (const std::uint32_t pieces : {2u, 7u, 64u}) {
    EXPECT_TRUE(state_in_pieces(GetParam(), pieces) == whole) << pieces;
  }
}

TEST_P(Semantics, DecayTakesTheOldWeightOnEverySimdTarget) {
  for (const std::string& target : simd::supported_targets()) {
    ASSERT_TRUE(simd::force_target(target));
    make();
    const GroupId group = engine().add_group({.lr = 0.1, .weight_decay = 0.5});
    // Long enough for whole vectors and a tail.
    const ParameterId w = t().add("w", std::vector<float>(100, 1.0F), group);
    engine().commit();
    t().step({{w, std::vector<float>(100, 0.5F)}});
    const State state = t().state(w);
    for (std::size_t i = 0; i < 100; ++i) {
      SCOPED_TRACE(target + " element " + std::to_string(i));
      // 0.855: decay after the update; 0.9: decay as part of the gradient.
      expect_near_relative(state.p[i], 0.85, 1e-6, "p");
      expect_near_relative(state.m[i], 0.05, 1e-6, "m");
      expect_near_relative(state.v[i], 0.00025, 1e-6, "v");
    }
  }
  simd::force_target("");
}

TEST_P(Semantics, EpsIsAddedToTheCorrectedRoot) {
  // A gradient as large as eps halves the step; 2^-27 is near 1e-8 and exact times the scale.
  constexpr double kEps = 0x1p-27;
  for (const double decay : {0.0, 0.1}) {
    make(fixed_scale(65536.0));
    const GroupId group = engine().add_group({.lr = 1e-3, .eps = kEps, .weight_decay = decay});
    const ParameterId w = t().add("w", {1.0F}, group);
    engine().commit();
    t().step({{w, {static_cast<float>(kEps * 65536.0)}}});
    // 3.07e-5: eps added to the uncorrected root; 1e-7: eps inside the root.
    const double moved = 1.0 - static_cast<double>(t().state(w).p[0]);
    EXPECT_NEAR(moved, 5e-4 + 1e-3 * decay, 6e-8);
  }
}

TEST_P(Semantics, NoGradientMeansNoUpdate) {
  for (const double decay : {0.0, 0.1}) {
    make();
    const GroupId group = engine().add_group({.lr = 0.1, .weight_decay = decay});
    const ParameterId w = t().add("w", {1.0F}, group);
    const ParameterId other = t().add("other", {1.0F}, group);
    const ParameterId never = t().add("never", {0.75F, 0.1F}, group);
    engine().commit();
    const State untouched = t().state(never);
    EXPECT_EQ(untouched.p, to_floats(untouched.weight));
    t().step({{w, {0.5F}}, {other, {1.0F}}});
    const State before = t().state(w);
    t().step({{other, {1.0F}}});
    EXPECT_TRUE(t().state(w) == before);
    t().step({{w, {0.5F}}, {other, {1.0F}}});
    const State after = t().state(w);
    EXPECT_EQ(after.t, 2u);
    EXPECT_EQ(t().state(other).t, 3u);
    expect_near_relative(after.p[0], decay > 0 ? 0.7811 : 0.8, 1e-6, "p");
    EXPECT_TRUE(t().state(never) == untouched);
    EXPECT_EQ(engine().step_count(never), 0u);
  }
}

TEST_P(Semantics, AStepWithoutAnyGradientDoesNothing) {
  make();
  const GroupId group = engine().add_group({.lr = 0.1, .weight_decay = 0.1});
  const ParameterId w = t().add("w", {1.0F}, group);
  engine().commit();
  EXPECT_EQ(t().step({}).outcome, StepOutcome::empty);
  t().step({{w, {0.5F}}});
  const State before = t().state(w);
  const std::uint64_t digest = engine().state_digest();
  const StepResult result = t().step({});
  EXPECT_EQ(result.outcome, StepOutcome::empty);
  EXPECT_FALSE(result.applied());
  EXPECT_FALSE(result.skipped());
  EXPECT_EQ(result.step, 3u);
  EXPECT_EQ(result.next_loss_scale, 1.0);
  EXPECT_TRUE(t().state(w) == before);
  EXPECT_EQ(engine().state_digest(), digest);
}

TEST_P(Semantics, NormIgnoresAbsentGradients) {
  Config config = fixed_scale(1.0);
  config.max_grad_norm = 1.0;
  make(config);
  const GroupId group = engine().add_group({.lr = 0.1});
  const ParameterId a = t().add("a", {1.0F}, group);
  const ParameterId b = t().add("b", {1.0F}, group);
  const ParameterId c = t().add("c", {1.0F}, group);
  engine().commit();
  const State untouched = t().state(c);
  const StepResult first = t().step({{a, {3.0F}}, {b, {4.0F}}});
  EXPECT_DOUBLE_EQ(first.grad_norm, 5.0);
  EXPECT_NEAR(first.clip, 0.2, 1e-6);
  EXPECT_TRUE(t().state(c) == untouched);
  const StepResult second = t().step({{c, {12.0F}}, {a, {3.0F}}, {b, {4.0F}}});
  EXPECT_DOUBLE_EQ(second.grad_norm, 13.0);
  // What the others' norms were before does not linger.
  EXPECT_DOUBLE_EQ(t().step({{a, {3.0F}}}).grad_norm, 3.0);
}

TEST_P(Semantics, ClippingIsAppliedOnceAfterUnscaling) {
  for (const double limit : {1.0, 0.0, std::numeric_limits<double>::infinity()}) {
    Config config = fixed_scale(1024.0);
    config.max_grad_norm = limit;
    make(config);
    const GroupId group = engine().add_group({.lr = 0.1});
    const ParameterId a = t().add("a", {1.0F}, group);
    const ParameterId b = t().add("b", {1.0F}, group);
    engine().commit();
    const StepResult result = t().step({{a, {3.0F * 1024}}, {b, {4.0F * 1024}}});
    SCOPED_TRACE(limit);
    EXPECT_NEAR(result.grad_norm, 5.0, 1e-9);
    const double factor = limit == 1.0 ? 0.2 : 1.0;
    EXPECT_NEAR(result.clip, factor, 1e-6);
    const State first = t().state(a);
    const State second = t().state(b);
    expect_near_relative(first.m[0], 0.3 * factor, 1e-5, "m of 3");
    expect_near_relative(second.m[0], 0.4 * factor, 1e-5, "m of 4");
    expect_near_relative(first.v[0], 9e-3 * factor * factor, 1e-5, "v of 3");
    expect_near_relative(second.v[0], 16e-3 * factor * factor, 1e-5, "v of 4");
  }
}

struct Bad {
  std::uint64_t element;
  float value;
};

TEST_P(Semantics, ANonFiniteElementSkipsTheWholeStep) {
  Config config;
  config.loss_scaling.initial_scale = 1024.0;
  make(config);
  const GroupId group = engine().add_group({.lr = 0.1, .weight_decay = 0.1});
  const ParameterId good = t().add("good", std::vector<float>(10, 1.0F), group);
  const ParameterId bad = t().add("block.7.bad", std::vector<float>(9001, 0.5F), group);
  engine().commit();
  const std::vector<float> good_gradient(10, 1.0F);
  const std::vector<float> clean(9001, 1.0F);
  double scale = 1024.0;
  std::uint64_t step = 0;
  for (const Bad at : std::vector<Bad>{
           {0, kNan}, {512, -kInf}, {4095, kInf}, {4096, kNan}, {8999, kInf}, {9000, -kInf}}) {
    SCOPED_TRACE(at.element);
    EXPECT_TRUE(t().step({{good, good_gradient}, {bad, clean}}).applied());
    ++step;
    const State good_before = t().state(good);
    const State bad_before = t().state(bad);
    std::vector<float> gradient = clean;
    gradient[at.element] = at.value;
    const StepResult result = t().step({{good, good_gradient}, {bad, gradient}});
    EXPECT_EQ(result.outcome, StepOutcome::skipped);
    EXPECT_EQ(result.loss_scale, scale);
    EXPECT_EQ(result.next_loss_scale, scale / 2);
    EXPECT_EQ(engine().loss_scale(), scale / 2);
    scale /= 2;
    ASSERT_TRUE(result.non_finite.has_value());
    EXPECT_EQ(result.non_finite->parameter, bad);
    EXPECT_EQ(result.non_finite->name, "block.7.bad");
    EXPECT_EQ(result.non_finite->element, at.element);
    EXPECT_EQ(result.non_finite->count, 1u);
    EXPECT_EQ(result.non_finite->is_nan, std::isnan(at.value));
    EXPECT_TRUE(t().state(good) == good_before);
    EXPECT_TRUE(t().state(bad) == bad_before);
    EXPECT_EQ(t().state(bad).t, step);
  }
  EXPECT_EQ(engine().stats().steps_applied, step);
  EXPECT_EQ(engine().stats().steps_skipped, step);
}

TEST_P(Semantics, ManyNonFiniteElementsHalveTheScaleOnceAndTheFirstIsNamed) {
  Config config;
  config.loss_scaling.initial_scale = 1024.0;
  make(config);
  const GroupId group = engine().add_group({});
  const ParameterId a = t().add("a", std::vector<float>(5000, 1.0F), group);
  const ParameterId b = t().add("b", std::vector<float>(5000, 1.0F), group);
  engine().commit();
  std::vector<float> bad_a(5000, 1.0F);
  bad_a[4321] = -kInf;
  bad_a[4322] = kNan;
  bad_a[4999] = kInf;
  // b's gradient is handed in first, yet a comes first in registration order.
  const StepResult result = t().step({{b, std::vector<float>(5000, kNan)}, {a, bad_a}});
  EXPECT_TRUE(result.skipped());
  EXPECT_EQ(result.next_loss_scale, 512.0);
  ASSERT_TRUE(result.non_finite.has_value());
  EXPECT_EQ(result.non_finite->name, "a");
  EXPECT_EQ(result.non_finite->element, 4321u);
  EXPECT_EQ(result.non_finite->count, 3u);
  EXPECT_FALSE(result.non_finite->is_nan);
}

TEST_P(Semantics, AFixedScaleSkipsToo) {
  make(fixed_scale(8.0));
  const GroupId group = engine().add_group({});
  const ParameterId w = t().add("w", {1.0F, 2.0F}, group);
  engine().commit();
  const State before = t().state(w);
  const StepResult result = t().step({{w, {1.0F, kInf}}});
  EXPECT_TRUE(result.skipped());
  EXPECT_EQ(result.next_loss_scale, 8.0);
  EXPECT_TRUE(t().state(w) == before);
  EXPECT_TRUE(t().step({{w, {1.0F, 1.0F}}}).applied());
  EXPECT_EQ(t().state(w).t, 1u);
}

TEST_P(Semantics, AccumulationDividesTheSum) {
  Config config = fixed_scale(1.0);
  config.accumulation = 4;
  make(config);
  const GroupId group = engine().add_group({.lr = 0.1});
  const ParameterId w = t().add("w", {1.0F}, group);
  engine().commit();
  // Micro-gradients 1, 2, 3, 4, then -1 four times.
  EXPECT_DOUBLE_EQ(t().step({{w, {10.0F}}}).grad_norm, 2.5);
  EXPECT_DOUBLE_EQ(t().step({{w, {-4.0F}}}).grad_norm, 1.0);
  const State state = t().state(w);
  expect_near_relative(state.p[0], 0.8654394, 1e-6, "p");
  expect_near_relative(state.m[0], 0.125, 1e-6, "m");
  expect_near_relative(state.v[0], 0.00724375, 1e-6, "v");
}

TEST_P(Semantics, WithoutAccumulationTheSumIsTakenAsItIs) {
  make();
  const GroupId group = engine().add_group({.lr = 0.1});
  const ParameterId w = t().add("w", {1.0F}, group);
  engine().commit();
  t().step({{w, {10.0F}}});
  t().step({{w, {-2.0F}}});
  const State state = t().state(w);
  expect_near_relative(state.p[0], 0.8488974, 1e-6, "p");
  expect_near_relative(state.m[0], 0.7, 1e-6, "m");
  expect_near_relative(state.v[0], 0.1039, 1e-6, "v");
}

TEST_P(Semantics, FiniteMastersThatOverflowSixteenBitsAreCounted) {
  make();
  const GroupId group = engine().add_group({.lr = 100.0});
  const ParameterId w = t().add("w", {65504.0F, 1.0F, -65504.0F}, group);
  const ParameterId other = t().add("other", {1.0F}, group);
  engine().commit();
  t().step({{w, {-1.0F, 1.0F, 1.0F}}, {other, {1.0F}}});
  const State state = t().state(w);
  EXPECT_EQ(state.weight[0], 0x7C00);
  EXPECT_EQ(state.weight[2], 0xFC00);
  EXPECT_TRUE(std::isfinite(state.p[0]));
  // A resident update's count comes with the next gate and is added by the step after.
  t().step({{other, {1.0F}}});
  t().step({{other, {1.0F}}});
  EXPECT_EQ(engine().stats().weight_overflows, 2u);
}

}  // namespace
}  // namespace outboard::testing
