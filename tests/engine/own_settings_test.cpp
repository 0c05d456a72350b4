// SPDX-License-Identifier: Apache-2.0
/// Numbers that a step must leave in f32, groups of any size with settings of their own, and second
/// names of a weight.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/drawn_options.hpp"
#include "engine/flavours.hpp"
#include "engine/trajectory.hpp"
#include "support/expect_error.hpp"
#include "support/manual_trainer.hpp"
#include "support/plain_rules.hpp"
#include "support/seeds.hpp"

namespace outboard::testing {
namespace {

using State = ManualTrainer::State;

Config fixed_scale(double scale = 1.0) {
  Config config;
  config.loss_scaling = {.dynamic = false, .initial_scale = scale};
  return config;
}

class OwnSettings : public ::testing::TestWithParam<Flavour> {
 protected:
  void make(const Config& config) {
    trainer_.emplace(GetParam().apply(config), GetParam().device());
  }
  ManualTrainer& t() { return trainer_.value(); }
  Engine& engine() { return *t().engine; }
  std::optional<ManualTrainer> trainer_;
};
INSTANTIATE_TEST_SUITE_P(Ways, OwnSettings, ::testing::ValuesIn(all_flavours()),
                         [](const auto& test) { return flavour_name(test.param); });

// --- clipping in f32 -----------------------------------------------------------------------------

void expect_moments(const State& state, double m, double v) {
  EXPECT_NEAR(state.m[0], m, m * 1e-5);
  EXPECT_NEAR(state.v[0], v, v * 1e-5);
}

TEST_P(OwnSettings, ClippingOfF32IsAppliedOnceAfterUnscaling) {
  constexpr float kScale = 1024.0F;
  for (const double limit : {1.0, 0.0, std::numeric_limits<double>::infinity()}) {
    SCOPED_TRACE(limit);
    Config config = fixed_scale(kScale);
    config.max_grad_norm = limit;
    make(config);
    t().dtype = DType::f32;
    const GroupId group = engine().add_group({.lr = 0.1});
    const ParameterId three = t().add("three", {1.0F}, group);
    const ParameterId four = t().add("four", {1.0F}, group);
    engine().commit();
    const StepResult result = t().step({{three, {3.0F * kScale}}, {four, {4.0F * kScale}}});
    EXPECT_DOUBLE_EQ(result.grad_norm, 5.0);
    const double clip = limit == 1.0 ? 0.2 : 1.0;
    EXPECT_NEAR(result.clip, clip, 1e-7);
    expect_moments(t().state(three), 0.1 * 3.0 * clip, 1e-3 * 9.0 * clip * clip);
    expect_moments(t().state(four), 0.1 * 4.0 * clip, 1e-3 * 16.0 * clip * clip);
  }
}

/// The mean of 8, 12 and of -2, -4 is 3, 4.
TEST_P(OwnSettings, ClippingOfF32TakesTheAccumulatedGradient) {
  Config config = GetParam().apply(fixed_scale());
  config.max_grad_norm = 1.0;
  config.accumulation = 2;
  config.accumulate = Accumulate::host;
  trainer_.emplace(config, GetParam().device());
  t().dtype = DType::f32;
  const GroupId group = engine().add_group({.lr = 0.1});
  const ParameterId three = t().add("three", {1.0F}, group);
  const ParameterId four = t().add("four", {1.0F}, group);
  engine().commit();
  const StepResult result =
      t().step({{three, {8.0F}}, {four, {12.0F}}, {four, {-4.0F}}, {three, {-2.0F}}});
  EXPECT_DOUBLE_EQ(result.grad_norm, 5.0);
  expect_moments(t().state(three), 0.06, 3.6e-4);
  expect_moments(t().state(four), 0.08, 6.4e-4);
}

// --- groups --------------------------------------------------------------------------------------

struct Tensor {
  std::uint64_t elems;
  std::uint32_t group;
};
/// Of three groups: three tensors, none, and five.
constexpr std::array<Tensor, 8> kTensors = {
    {{300, 0}, {5000, 2}, {1, 2}, {4097, 0}, {64, 2}, {700, 2}, {2, 0}, {900, 2}}};
const std::array<AdamW, 3> kGroups = {
    AdamW{.lr = 1e-2, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.1},
    AdamW{.lr = 1.0},
    AdamW{.lr = 3e-3, .beta1 = 0.95, .beta2 = 0.9, .eps = 1e-2, .weight_decay = 0.0}};

std::vector<float> pattern(std::uint64_t which, std::uint64_t elems) {
  std::vector<float> out;
  for (std::uint64_t e = 0; e < elems; ++e) out.push_back(mixed_unit(which, 0, e));
  return out;
}

void expect_near(const std::vector<float>& seen, const std::vector<double>& want) {
  ASSERT_EQ(seen.size(), want.size());
  for (std::size_t e = 0; e < want.size(); ++e) ASSERT_NEAR(seen[e], want[e], 2e-6) << e;
}

/// The tensor's state in double, after three steps with its group's settings.
PlainState plain_tensor(const Tensor& tensor) {
  const Rule rule = kGroups.at(tensor.group);
  PlainState state = plain_state(rule, pattern(1, tensor.elems));
  for (std::uint64_t step = 0; step < 3; ++step) {
    const std::vector<float> gradient = pattern(10 + step, tensor.elems);
    plain_update(rule, state, {gradient.begin(), gradient.end()});
  }
  return state;
}

TEST_P(OwnSettings, OfGroupsOfThreeNoAndFiveTensors) {
  make(fixed_scale());
  std::vector<GroupId> groups;
  for (const AdamW& settings : kGroups) groups.push_back(engine().add_group(settings));
  std::vector<ParameterId> ids;
  for (const Tensor& tensor : kTensors) {
    ids.push_back(t().add("w" + std::to_string(ids.size()), pattern(1, tensor.elems),
                          groups.at(tensor.group)));
  }
  engine().commit();
  for (std::uint64_t step = 0; step < 3; ++step) {
    ManualTrainer::Gradients gradients;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      gradients.emplace_back(ids[i], pattern(10 + step, kTensors.at(i).elems));
    }
    EXPECT_TRUE(t().step(gradients).applied());
  }
  for (std::size_t i = 0; i < ids.size(); ++i) {
    SCOPED_TRACE(i);
    const State state = t().state(ids[i]);
    const PlainState want = plain_tensor(kTensors.at(i));
    EXPECT_EQ(state.t, 3U);
    expect_near(state.p, want.p);
    expect_near(state.m, want.first);
    expect_near(state.v, want.second);
  }
}

TEST(OwnSetting, WouldShowInNumbers) {
  const PlainState first = plain_tensor({300, 0});
  const PlainState last = plain_tensor({300, 2});
  for (std::size_t e = 0; e < 300; ++e) EXPECT_GT(std::abs(first.p[e] - last.p[e]), 1e-5) << e;
}

// --- second names --------------------------------------------------------------------------------

ParameterSpec second_name(ManualTrainer& trainer, ParameterId of, GroupId group) {
  ParameterSpec spec;
  spec.name = "second name";
  spec.dtype = trainer.dtype;
  spec.elems = 1;
  spec.data = trainer.weight(of);
  spec.group = group;
  return spec;
}

/// What each name gives is added up by the engine.
TEST_P(OwnSettings, ContributionsThroughTwoNamesAreOneGradient) {
  Config config = GetParam().apply(fixed_scale());
  config.accumulate = Accumulate::host;
  trainer_.emplace(config, GetParam().device());
  t().dtype = DType::f32;
  const GroupId group = engine().add_group({.lr = 0.1});
  const ParameterId first = t().add("first name", {1.0F}, group);
  const ParameterId second = engine().add_parameter(second_name(t(), first, group));
  engine().commit();
  EXPECT_EQ(engine().ledger().trainable_elems, 1U);
  EXPECT_DOUBLE_EQ(t().step({{first, {0.5F}}, {second, {-0.2F}}}).grad_norm,
                   static_cast<double>(0.5F - 0.2F));
  const State state = t().state(second);
  EXPECT_EQ(state.t, 1U);
  EXPECT_NEAR(state.m[0], 0.03, 1e-8);
  EXPECT_NEAR(state.v[0], 9e-5, 1e-10);
  EXPECT_NEAR(state.p[0], 0.9, 1e-7);
}

/// With an open gate the engine must know how many will come.
TEST(SecondName, NeedsItsContributionAnnouncedToAnOpenGate) {
  Config config = fixed_scale();
  config.schedule = Schedule::open;
  config.accumulate = Accumulate::host;
  ManualTrainer trainer(config);
  trainer.dtype = DType::f32;
  Engine& engine = *trainer.engine;
  const GroupId group = engine.add_group({.lr = 0.1});
  const ParameterId first = trainer.add("first name", {1.0F}, group);
  const ParameterId second = engine.add_parameter(second_name(trainer, first, group));
  engine.commit();
  trainer.wait_all();
  trainer.give(first, {0.5F});
  expect_error(ErrorCode::protocol_error,
               {"gradient_ready()", "'first name'", "all 1 micro-batches", "Schedule::open",
                "set_accumulation()"},
               [&] { trainer.give(second, {-0.2F}); });
  EXPECT_TRUE(engine.step().applied());
  engine.set_accumulation(2);
  EXPECT_TRUE(trainer.step({{first, {0.5F}}, {second, {-0.25F}}}).applied());
  EXPECT_NEAR(trainer.state(first).m[0], 0.9 * 0.05 + 0.1 * 0.125, 1e-8);
}

/// Second names for some weights, registered before the commit or between two steps.
void add_second_names(TinyTrainer& trainer, std::uint64_t which, const char* suffix) {
  for (std::uint32_t i = 0; i < 9; ++i) {
    if ((which >> i & 1) == 0) continue;
    ParameterSpec spec = trainer.spec(i);
    spec.name += suffix;
    EXPECT_EQ(trainer.engine().add_parameter(spec), trainer.id(i));
  }
  trainer.engine().commit();
}

TEST(SecondName, ChangesNoBitOfAnyRun) {
  TinyOptions plain = small_model();
  plain.config.schedule = Schedule::serial;
  const Trajectory reference = run_trajectory(plain, {.steps = 4});
  for_each_seed(200, [&](std::uint64_t seed) {
    Draw draw(seed);
    TinyOptions options = small_model();
    options.device.seed = seed;
    draw_device(draw, options.device);
    draw_config(draw, options.config);
    round_fraction(options);
    draw_trainer(draw, options);
    SCOPED_TRACE(describe(options));
    TinyTrainer trainer(options);
    trainer.prepare();
    add_second_names(trainer, draw.below(512), " again");
    const MemoryLedger ledger = trainer.engine().ledger();
    Trajectory seen = run_trajectory(trainer, {.steps = 2, .digests = draw.below(4)});
    add_second_names(trainer, draw.below(512), " later");
    EXPECT_EQ(trainer.engine().ledger().to_string(), ledger.to_string());
    append(seen, run_trajectory(trainer, {.steps = 2}));
    EXPECT_EQ(first_difference(reference, seen), "");
  });
}

// --- what cannot go together ---------------------------------------------------------------------

TEST(OpenGateMoves, RefuseAChoiceThatStepCouldNotMake) {
  TinyOptions options = small_model();
  options.config.schedule = Schedule::open;
  options.config.max_grad_norm = 0.0;
  options.config.loss_scaling = {.dynamic = false, .initial_scale = 64.0};
  options.injected.clear();
  options.digest = false;
  TinyTrainer trainer(options);
  trainer.start();
  trainer.step();
  const std::uint64_t before = trainer.engine().state_digest();
  expect_error(ErrorCode::invalid_config, {"Config::placement", "automatic", "Schedule::open"},
               [&] { trainer.engine().set_placement({.placement = Placement::automatic}); });
  EXPECT_EQ(trainer.engine().state_digest(), before);
  trainer.forward();
  trainer.give_gradient(8);
  expect_error(ErrorCode::protocol_error, {"set_placement()", "step()"},
               [&] { trainer.engine().set_placement({.placement = Placement::device_resident}); });
  for (std::uint32_t i = 8; i-- > 0;) trainer.give_gradient(i);
  EXPECT_TRUE(trainer.finish().result.applied());
  EXPECT_NO_THROW(trainer.engine().set_placement({.placement = Placement::device_resident}));
  EXPECT_TRUE(trainer.step().result.applied());
}

/// Its norms need all of a parameter's state at once, which is never on the device.
TEST(StreamedState, RefusesLambWheneverItComes) {
  Config config = fixed_scale();
  config.placement = Placement::device_streamed;
  ManualTrainer trainer(config);
  Engine& engine = *trainer.engine;
  const ParameterId first = trainer.add("first", {1.0F, 2.0F}, engine.add_group({.lr = 0.1}));
  engine.commit();
  EXPECT_TRUE(trainer.step({{first, {0.5F, 0.5F}}}).applied());
  const std::uint64_t before = engine.state_digest();
  trainer.add("late", {1.0F}, engine.add_group(Lamb{.lr = 0.1}));
  expect_error(ErrorCode::invalid_config, {"'late'", "Lamb", "device_streamed"},
               [&] { engine.commit(); });
  EXPECT_EQ(engine.state_digest(), before);
  engine.wait(first, trainer.stream);
  trainer.give(first, {0.5F, 0.5F});
  EXPECT_TRUE(engine.step().applied()) << "the engine goes on as it was";
}

TEST(StreamedState, IsNoPlaceToMoveLambTo) {
  ManualTrainer trainer(fixed_scale());
  Engine& engine = *trainer.engine;
  const ParameterId w = trainer.add("w", {1.0F, 2.0F}, engine.add_group(Lamb{.lr = 0.1}));
  engine.commit();
  EXPECT_TRUE(trainer.step({{w, {0.5F, 0.5F}}}).applied());
  const std::uint64_t before = engine.state_digest();
  expect_error(ErrorCode::invalid_config, {"'w'", "Lamb", "device_streamed"},
               [&] { engine.set_placement({.placement = Placement::device_streamed}); });
  EXPECT_EQ(engine.state_digest(), before);
  EXPECT_TRUE(trainer.step({{w, {0.5F, 0.5F}}}).applied());
}

}  // namespace
}  // namespace outboard::testing
