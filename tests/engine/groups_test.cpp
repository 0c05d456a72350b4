// SPDX-License-Identifier: Apache-2.0
/// Parameters and groups: ties, masters, settings that change, weights that the trainer changes,
/// gradients it drops, and the loss scale over many steps.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "engine/flavours.hpp"
#include "support/expect_error.hpp"
#include "support/manual_trainer.hpp"

namespace outboard::testing {
namespace {

using State = ManualTrainer::State;
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

Config plain_scale() {
  Config config;
  config.loss_scaling.dynamic = false;
  config.loss_scaling.initial_scale = 1.0;
  return config;
}

class Groups : public ::testing::TestWithParam<Flavour> {
 protected:
  void make(const Config& config = plain_scale()) {
    trainer_.emplace(GetParam().apply(config), GetParam().device());
  }
  ManualTrainer& t() { return trainer_.value(); }
  Engine& engine() { return *t().engine; }
  std::optional<ManualTrainer> trainer_;
};
INSTANTIATE_TEST_SUITE_P(Ways, Groups, ::testing::ValuesIn(all_flavours()),
                         [](const auto& test) { return flavour_name(test.param); });

TEST_P(Groups, TiedWeightsAreOneParameter) {
  make();
  const GroupId group = engine().add_group({.lr = 0.1});
  const ParameterId embedding = t().add("embedding", {1.0F}, group);
  ParameterSpec head;
  head.name = "head";
  head.elems = 1;
  head.data = t().weight(embedding);
  head.group = group;
  EXPECT_EQ(engine().add_parameter(head), embedding);
  const ParameterId next = t().add("next", {1.0F}, group);
  EXPECT_EQ(next.value, embedding.value + 1);
  engine().commit();
  EXPECT_EQ(engine().ledger().trainable_elems, 2u);

  const float sum = half_to_float(half_from_float(0.5F - 0.2F));
  t().step({{embedding, {sum}}});
  const State state = t().state(embedding);
  EXPECT_EQ(state.t, 1u);
  EXPECT_NEAR(state.m[0], 0.1 * sum, 1e-8);
  EXPECT_NEAR(state.m[0], 0.03, 1e-5);
  EXPECT_NEAR(state.v[0], 9e-5, 1e-7);
  EXPECT_NEAR(state.p[0], 0.9, 1e-6);
}

TEST_P(Groups, TiesNeedTheSameDataAndSize) {
  make();
  const GroupId group = engine().add_group({});
  const ParameterId w = t().add("w", {1.0F, 2.0F}, group);
  ParameterSpec half;
  half.name = "first_half_of_w";
  half.elems = 1;
  half.data = t().weight(w);
  half.group = group;
  // A view of another size would be updated twice with one gradient each.
  expect_error(ErrorCode::invalid_argument, {"first_half_of_w", "w"},
               [&] { engine().add_parameter(half); });
}

TEST_P(Groups, EachGroupHasItsOwnSettings) {
  make();
  const GroupId slow = engine().add_group({.lr = 1e-3});
  const GroupId fast = engine().add_group({.lr = 1e-1, .weight_decay = 0.5});
  const GroupId none = engine().add_group({.lr = 0.0});
  const ParameterId a = t().add("a", {1.0F}, slow);
  const ParameterId b = t().add("b", {1.0F}, fast);
  const ParameterId c = t().add("c", {1.0F}, none);
  engine().commit();
  t().step({{a, {0.5F}}, {b, {0.5F}}, {c, {0.5F}}});
  EXPECT_NEAR(t().state(a).p[0], 0.999, 1e-6);
  EXPECT_NEAR(t().state(b).p[0], 0.85, 1e-6);
  EXPECT_EQ(t().state(c).p[0], 1.0F);
  EXPECT_NEAR(t().state(c).m[0], 0.05, 1e-7);
}

TEST_P(Groups, NewSettingsHoldFromTheNextStepCall) {
  make();
  AdamW settings{.lr = 0.1};
  const GroupId group = engine().add_group(settings);
  const ParameterId w = t().add("w", {1.0F}, group);
  engine().commit();
  t().step({{w, {0.5F}}});
  // The step before may still be at work: it must not see the new rate.
  settings.lr = 0.0;
  engine().set_group(group, settings);
  EXPECT_NEAR(t().state(w).p[0], 0.9, 1e-6);
  const float stays = t().state(w).p[0];
  t().step({{w, {0.5F}}});
  EXPECT_EQ(t().state(w).p[0], stays);
  // With gradients given already, the coming step() takes the new settings.
  t().wait_all();
  t().give(w, {0.5F});
  settings.lr = 0.1;
  engine().set_group(group, settings);
  engine().step();
  EXPECT_NEAR(t().state(w).p[0], 0.8, 1e-5);
}

TEST_P(Groups, GivenMastersAreTakenWithoutADetour) {
  make();
  const GroupId group = engine().add_group({.lr = 0.0});
  const std::vector<float> master = {1.0F + 0x1p-20F, -3.14159265F, 1e-9F};
  // What the device holds before is overwritten.
  const ParameterId w = t().add("w", {7.0F, 8.0F, 9.0F}, group, master);
  engine().commit();
  State state = t().state(w);
  EXPECT_EQ(state.p, master);
  EXPECT_EQ(state.weight, to_halves(master));
  EXPECT_EQ(state.m, std::vector<float>(3, 0.0F));
  EXPECT_EQ(state.v, std::vector<float>(3, 0.0F));
  EXPECT_EQ(state.t, 0u);
  t().step({{w, {1.0F, 1.0F, 1.0F}}});
  state = t().state(w);
  EXPECT_EQ(state.p, master);
}

TEST_P(Groups, ChangedWeightsAreReadAgainAndMomentsStay) {
  make();
  AdamW settings{.lr = 0.1};
  const GroupId group = engine().add_group(settings);
  const ParameterId w = t().add("w", {1.0F, 2.0F}, group);
  const ParameterId other = t().add("other", {3.0F}, group);
  engine().commit();
  t().step({{w, {0.5F, 0.25F}}, {other, {1.0F}}});
  const State before = t().state(w);
  const State other_before = t().state(other);

  const std::vector<float> loaded = {0.1F, -5.0F};
  engine().wait(w, t().stream);
  upload<std::uint16_t>(t().gpu, t().weight(w), to_halves(loaded), t().stream);
  engine().weights_changed(w, t().stream);
  const State after = t().state(w);
  EXPECT_EQ(after.weight, to_halves(loaded));
  EXPECT_EQ(after.p, to_floats(to_halves(loaded)));
  EXPECT_EQ(after.m, before.m);
  EXPECT_EQ(after.v, before.v);
  EXPECT_EQ(after.t, before.t);
  EXPECT_TRUE(t().state(other) == other_before);

  settings.lr = 0.0;
  engine().set_group(group, settings);
  t().step({{w, {0.5F, 0.25F}}});
  EXPECT_EQ(t().state(w).weight, to_halves(loaded));
  settings.lr = 0.5;
  engine().set_group(group, settings);
  t().step({{w, {0.5F, 0.25F}}});
  EXPECT_NEAR(t().state(w).p[1], -5.5, 0.01);
}

TEST_P(Groups, DiscardDropsTheGradients) {
  make();
  const GroupId group = engine().add_group({.lr = 0.1, .weight_decay = 0.1});
  const ParameterId a = t().add("a", std::vector<float>(5000, 1.0F), group);
  const ParameterId b = t().add("b", {1.0F}, group);
  engine().commit();
  t().step({{a, std::vector<float>(5000, 0.5F)}, {b, {0.5F}}});
  const State a_before = t().state(a);
  const State b_before = t().state(b);
  t().wait_all();
  t().give(b, {100.0F});
  t().give(a, std::vector<float>(5000, kNan));
  engine().discard();
  EXPECT_TRUE(t().state(a) == a_before);
  EXPECT_TRUE(t().state(b) == b_before);
  EXPECT_EQ(t().step({}).outcome, StepOutcome::empty);
  // The next gradients are not mixed with the dropped ones.
  const StepResult result = t().step({{b, {3.0F}}, {a, std::vector<float>(5000, 0.0F)}});
  EXPECT_TRUE(result.applied());
  EXPECT_DOUBLE_EQ(result.grad_norm, 3.0);
  EXPECT_EQ(t().state(a).t, 2u);
  engine().discard();  // nothing to drop: legal
}

TEST_P(Groups, EmptyParametersAreLegal) {
  make();
  const GroupId group = engine().add_group({.lr = 0.1});
  const ParameterId empty = t().add("empty", {}, group);
  const ParameterId w = t().add("w", {1.0F}, group);
  engine().commit();
  const StepResult result = t().step({{w, {0.5F}}, {empty, {}}});
  EXPECT_TRUE(result.applied());
  EXPECT_DOUBLE_EQ(result.grad_norm, 0.5);
  t().step({{empty, {}}});
  EXPECT_NEAR(t().state(w).p[0], 0.9, 1e-6);
  EXPECT_EQ(t().state(w).t, 1u);
  EXPECT_TRUE(t().state(empty).p.empty());
}

TEST_P(Groups, AnEngineWithoutParametersSteps) {
  make();
  engine().commit();
  EXPECT_EQ(engine().step().outcome, StepOutcome::empty);
  EXPECT_EQ(engine().ledger().trainable_elems, 0u);
}

Config scaling(double initial, std::uint32_t growth_interval, std::uint32_t give_up_after = 100) {
  Config config;
  config.loss_scaling = {.dynamic = true,
                         .initial_scale = initial,
                         .growth_interval = growth_interval,
                         .give_up_after = give_up_after};
  return config;
}

TEST_P(Groups, TheScaleFallsToItsFloorAndRecovers) {
  make(scaling(65536.0, 10));
  const GroupId group = engine().add_group({});
  const ParameterId w = t().add("w", {1.0F}, group);
  engine().commit();
  EXPECT_EQ(engine().loss_scale(), 65536.0);
  int halvings = 0;
  for (int i = 0; i < 40; ++i) {
    const StepResult result = t().step({{w, {kInf}}});
    ASSERT_TRUE(result.skipped());
    if (result.next_loss_scale == result.loss_scale / 2) ++halvings;
    ASSERT_GE(result.next_loss_scale, 1.0);
  }
  EXPECT_EQ(halvings, 16);
  EXPECT_EQ(engine().loss_scale(), 1.0);
  for (int i = 0; i < 25; ++i) ASSERT_TRUE(t().step({{w, {0.5F}}}).applied());
  EXPECT_EQ(engine().loss_scale(), 4.0);
}

TEST_P(Groups, AnOverflowStartsTheGrowthIntervalAgain) {
  make(scaling(16.0, 3));
  const GroupId group = engine().add_group({});
  const ParameterId w = t().add("w", {1.0F}, group);
  engine().commit();
  const auto clean = [&] { return t().step({{w, {0.5F}}}).next_loss_scale; };
  EXPECT_EQ(clean(), 16.0);
  EXPECT_EQ(clean(), 16.0);
  EXPECT_EQ(t().step({{w, {kNan}}}).next_loss_scale, 8.0);
  EXPECT_EQ(clean(), 8.0);
  EXPECT_EQ(clean(), 8.0);
  // An empty step is no clean step.
  EXPECT_EQ(t().step({}).next_loss_scale, 8.0);
  const StepResult grown = t().step({{w, {0.5F}}});
  EXPECT_EQ(grown.loss_scale, 8.0);
  EXPECT_EQ(grown.next_loss_scale, 16.0);
}

TEST_P(Groups, TheScaleStopsAtItsMaximum) {
  Config config = scaling(4.0, 1);
  config.loss_scaling.max_scale = 16.0;
  make(config);
  const GroupId group = engine().add_group({});
  const ParameterId w = t().add("w", {1.0F}, group);
  engine().commit();
  for (int i = 0; i < 5; ++i) t().step({{w, {0.5F}}});
  EXPECT_EQ(engine().loss_scale(), 16.0);
}

TEST_P(Groups, GivingUpNamesTheTensor) {
  make(scaling(65536.0, 10, 5));
  const GroupId group = engine().add_group({});
  const ParameterId fine = t().add("fine", {1.0F}, group);
  const ParameterId broken = t().add("layer.3.broken", {1.0F, 1.0F}, group);
  engine().commit();
  const auto overflow = [&] { t().step({{fine, {1.0F}}, {broken, {1.0F, kNan}}}); };
  for (int i = 0; i < 4; ++i) overflow();
  const State before = t().state(broken);
  expect_error(ErrorCode::numerics, {"layer.3.broken", "NaN", "5"}, overflow);
  EXPECT_TRUE(t().state(broken) == before);
}

}  // namespace
}  // namespace outboard::testing
