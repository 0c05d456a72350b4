// SPDX-License-Identifier: Apache-2.0
/// Skipped steps as a caller and a log see them: the result, the counters, one line where the
/// search for a loss scale starts, one where it ends, and an error where it leads nowhere.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "engine/precisions.hpp"
#include "support/expect_error.hpp"
#include "support/log_lines.hpp"
#include "support/manual_trainer.hpp"
#include "support/plain_adamw.hpp"

namespace outboard::testing {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

bool holds(const std::string& text, const std::string& word) {
  return text.find(word) != std::string::npos;
}

class Skips : public ::testing::TestWithParam<PreciseFlavour> {
 protected:
  void make(const LossScaling& scaling) {
    Config config;
    config.loss_scaling = scaling;
    config.log = log_.sink();
    trainer_.emplace(std::get<0>(GetParam()).apply(config), std::get<0>(GetParam()).device());
    t().dtype = std::get<1>(GetParam()).dtype;
  }
  /// What follows is the steps' own.
  void commit() {
    engine().commit();
    log_.clear();
  }
  ManualTrainer& t() { return trainer_.value(); }
  Engine& engine() { return *t().engine; }
  LogLines log_;
  std::optional<ManualTrainer> trainer_;
};
INSTANTIATE_TEST_SUITE_P(Ways, Skips, all_precise_flavours(),
                         [](const auto& test) { return precise_flavour_name(test.param); });

/// Overflows in calls 1 and 3 of 6, and a warm-up that goes on when a step was applied.
TEST_P(Skips, AreSeenByAScheduleThatCountsAppliedSteps) {
  make({.initial_scale = 1024.0});
  AdamW settings;
  const GroupId group = engine().add_group(settings);
  const ParameterId w = t().add("w", {1.0F, 1.0F}, group);
  commit();
  PlainAdamW plain({settings}, {});
  plain.add({1.0, 1.0});
  std::vector<bool> skipped;
  int advanced = 0;
  for (int call = 1; call <= 6; ++call) {
    settings.lr = 0.01 * (advanced + 1);
    engine().set_group(group, settings);
    const bool bad = call == 1 || call == 3;
    const auto scale = static_cast<float>(engine().loss_scale());
    const StepResult result = t().step({{w, {bad ? kInf : 0.5F * scale, 0.25F * scale}}});
    EXPECT_EQ(result.step, static_cast<std::uint64_t>(call));
    EXPECT_NE(result.skipped(), result.applied());
    skipped.push_back(result.skipped());
    if (result.skipped()) continue;
    ++advanced;
    plain.set_group(0, settings);
    plain.step({std::vector<double>{0.5 * plain.loss_scale(), 0.25 * plain.loss_scale()}});
  }
  EXPECT_EQ(skipped, (std::vector<bool>{true, false, true, false, false, false}));
  EXPECT_EQ(advanced, 4);
  EXPECT_EQ(engine().stats().steps_applied, 4u);
  EXPECT_EQ(engine().stats().steps_skipped, 2u);
  EXPECT_EQ(engine().step_count(w), 4u);
  for (std::size_t e = 0; e < 2; ++e) {
    EXPECT_NEAR(t().state(w).p[e], plain.parameter(0).p[e], 1e-6);
  }
  // Two rows of one skipped step: one line each, and each has said where the scale went.
  EXPECT_EQ(log_.texts().size(), 2u) << log_.all();
}

TEST_P(Skips, NameParameterElementKindStepCountAndScale) {
  make({.initial_scale = 1024.0});
  const GroupId group = engine().add_group({});
  const ParameterId a = t().add("a", std::vector<float>(20, 1.0F), group);
  const ParameterId b = t().add("b", std::vector<float>(20, 1.0F), group);
  commit();
  const std::vector<float> clean(20, 1.0F);
  t().step({{a, clean}, {b, clean}});
  std::vector<float> bad = clean;
  bad[3] = -kInf;
  bad[4] = kNan;
  bad[19] = kInf;
  EXPECT_TRUE(t().step({{a, bad}, {b, clean}}).skipped());
  ASSERT_EQ(log_.texts().size(), 1u) << log_.all();
  for (const char* word : {"step 2 skipped", "parameter 'a'", "Inf at element 3",
                           "the first of 3 non-finite", "the loss scale goes from 1024 to 512"}) {
    EXPECT_TRUE(holds(log_.texts()[0], word)) << word << " in " << log_.all();
  }
}

TEST_P(Skips, SayNothingOfALossScaleWhereThereIsNone) {
  make({.dynamic = false, .initial_scale = 1.0, .give_up_after = 3});
  const GroupId group = engine().add_group({});
  const ParameterId a = t().add("a", std::vector<float>(20, 1.0F), group);
  const ParameterId b = t().add("b", std::vector<float>(20, 1.0F), group);
  commit();
  const std::vector<float> clean(20, 1.0F);
  std::vector<float> bad = clean;
  bad[7] = kNan;
  const auto overflow = [&] { t().step({{a, clean}, {b, bad}}); };
  overflow();
  overflow();
  t().step({{a, clean}, {b, clean}});
  ASSERT_EQ(log_.texts().size(), 2u) << log_.all();
  for (const char* word :
       {"step 1 skipped", "parameter 'b'", "NaN at element 7", "the first of 1 non-finite"}) {
    EXPECT_TRUE(holds(log_.texts()[0], word)) << word << " in " << log_.all();
  }
  EXPECT_TRUE(holds(log_.texts()[1], "step 3 applied after 2 skipped")) << log_.all();
  EXPECT_FALSE(holds(log_.all(), "scale")) << log_.all();
  overflow();
  overflow();
  const std::optional<Error> error = caught(overflow);
  ASSERT_TRUE(error.has_value());
  const std::string text = error->what();
  EXPECT_TRUE(holds(text, "3 steps in a row")) << text;
  EXPECT_TRUE(holds(text, "parameter 'b'")) << text;
  EXPECT_FALSE(holds(text, "loss scale")) << text;
}

TEST_P(Skips, SayThatAFixedScaleStays) {
  make({.dynamic = false, .initial_scale = 8.0, .give_up_after = 2});
  const GroupId group = engine().add_group({});
  const ParameterId w = t().add("w", {1.0F}, group);
  commit();
  t().step({{w, {kInf}}});
  ASSERT_EQ(log_.texts().size(), 1u) << log_.all();
  EXPECT_TRUE(holds(log_.all(), "the loss scale is fixed at 8")) << log_.all();
  expect_error(ErrorCode::numerics, {"stayed at 8"}, [&] { t().step({{w, {kInf}}}); });
}

/// The gradient is 1, so the scale that fits a half is 2^15.
class ScaleSearch : public Skips {
 protected:
  void start(const LossScaling& scaling) {
    make(scaling);
    const GroupId group = engine().add_group({.lr = 1e-3});
    w_ = t().add("layer.w", {1.0F, 1.0F}, group);
    commit();
  }
  StepResult step() {
    const auto scale = static_cast<float>(engine().loss_scale());
    // What overflows where float itself is the gradient's type.
    const float one = engine().loss_scale() > 0x1p15 ? kInf : scale;
    return t().step({{w_, {0.0F, one}}});
  }
  ParameterId w_;
};
INSTANTIATE_TEST_SUITE_P(Ways, ScaleSearch, all_precise_flavours(),
                         [](const auto& test) { return precise_flavour_name(test.param); });

TEST_P(ScaleSearch, IsOneLineWhereItStartsAndOneWhereItSettles) {
  start({.initial_scale = 0x1p32, .max_scale = 0x1p32});
  for (int i = 0; i < 17; ++i) {
    ASSERT_TRUE(step().skipped());
    ASSERT_EQ(log_.texts().size(), 1u) << log_.all();
  }
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(step().applied());
    ASSERT_EQ(log_.texts().size(), 2u) << log_.all();
  }
  EXPECT_EQ(engine().loss_scale(), 0x1p15);
  EXPECT_EQ(engine().stats().steps_skipped, 17u);
  EXPECT_EQ(engine().stats().steps_applied, 100u);
  const std::string first = log_.texts()[0];
  const std::string second = log_.texts()[1];
  for (const char* word : {"step 1 skipped", "layer.w", "from 4294967296 to 2147483648"}) {
    EXPECT_TRUE(holds(first, word)) << first;
  }
  for (const char* word : {"step 18 applied", "17 skipped", "settled at 32768"}) {
    EXPECT_TRUE(holds(second, word)) << second;
  }
  // A sink that shows one shows the other.
  EXPECT_EQ(log_.warnings({"skipped"}), 2u);
}

TEST_P(ScaleSearch, GoesOnThroughStepsWithoutAGradient) {
  start({.initial_scale = 0x1p18});
  EXPECT_TRUE(step().skipped());
  t().step({});
  EXPECT_TRUE(step().skipped());
  EXPECT_TRUE(step().skipped());
  EXPECT_TRUE(step().applied());
  ASSERT_EQ(log_.texts().size(), 2u) << log_.all();
  EXPECT_TRUE(holds(log_.texts()[1], "3 skipped")) << log_.all();
}

TEST_P(ScaleSearch, FromTheDefaultStartIsShort) {
  start({});
  EXPECT_TRUE(step().skipped());
  EXPECT_TRUE(step().applied());
  EXPECT_EQ(log_.texts().size(), 1u) << log_.all();
}

TEST_P(ScaleSearch, GivesUpWithTheTensorTheKindAndEveryScale) {
  start({.initial_scale = 65536.0, .give_up_after = 50});
  const auto overflow = [&] { t().step({{w_, {1.0F, kNan}}}); };
  for (int i = 0; i < 49; ++i) ASSERT_NO_THROW(overflow()) << i;
  const auto before = t().state(w_);
  expect_error(
      ErrorCode::numerics,
      {"step 50", "50 steps in a row", "from 65536 to 1 in 16 halvings", "stayed there for 34 more",
       "parameter 'layer.w'", "NaN at element 1", "give_up_after"},
      overflow);
  EXPECT_TRUE(t().state(w_) == before);
  EXPECT_EQ(engine().stats().steps_skipped, 50u);
  EXPECT_EQ(engine().loss_scale(), 1.0);
  // One that ends it is taken as ever.
  EXPECT_TRUE(t().step({{w_, {1.0F, 1.0F}}}).applied());
}

TEST_P(ScaleSearch, GivingUpTellsInfFromNan) {
  start({.initial_scale = 4.0, .give_up_after = 2});
  t().step({{w_, {1.0F, kNan}}});
  expect_error(ErrorCode::numerics, {"from 4 to 1 in 2 halvings", "Inf at element 0"}, [&] {
    t().step({{w_, {kInf, kNan}}});
  });
}

}  // namespace
}  // namespace outboard::testing
