// SPDX-License-Identifier: Apache-2.0
/// Schedule::open as a trainer meets it: what it refuses and why, what a partial step leaves
/// untouched, and what the caller and the log are told.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/flavours.hpp"
#include "support/expect_error.hpp"
#include "support/log_lines.hpp"
#include "support/manual_trainer.hpp"

namespace outboard::testing {
namespace {

using State = ManualTrainer::State;
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// --- settings ------------------------------------------------------------------------------------

TEST(OpenGateSettings, RefuseWhatNeedsEveryGradientFirst) {
  Config config;
  config.schedule = Schedule::open;
  expect_error(ErrorCode::invalid_config, {"LossScaling::dynamic", "Schedule::open", "exact"},
               [&] { config.validate(); });
  config.loss_scaling.dynamic = false;
  EXPECT_NO_THROW(config.validate());
  config.max_grad_norm = std::numeric_limits<double>::infinity();
  EXPECT_NO_THROW(config.validate()) << "an infinite norm clips nothing";
  config.max_grad_norm = 1.0;
  expect_error(ErrorCode::invalid_config, {"Config::max_grad_norm is 1", "Schedule::open", "exact"},
               [&] { config.validate(); });
  config.max_grad_norm = 0.0;
  config.placement = Placement::automatic;
  expect_error(ErrorCode::invalid_config, {"Config::placement", "Schedule::open", "fraction"},
               [&] { config.validate(); });
}

/// Three parameters that share buckets and one that fills several.
class OpenGate : public ::testing::TestWithParam<Flavour> {
 protected:
  void SetUp() override {
    ids_.clear();
    Config config;
    config.loss_scaling.initial_scale = 1.0;
    config.loss_scaling.give_up_after = 4;
    config.log = log_.sink();
    trainer_.emplace(GetParam().apply(config), GetParam().device());
    group_ = engine().add_group({.lr = 0.1, .weight_decay = 0.1});
    for (const std::size_t elems : kSizes) {
      const std::string name = "w" + std::to_string(ids_.size());
      ids_.push_back(t().add(name, std::vector<float>(elems, 1.0F), group_));
    }
    engine().commit();
    log_.clear();
  }
  ManualTrainer& t() { return trainer_.value(); }
  Engine& engine() { return *t().engine; }
  [[nodiscard]] static std::vector<float> gradient(std::size_t i, float value = 0.5F) {
    return std::vector<float>(kSizes.at(i), value);
  }
  /// All parameters but those in `without`; the last element of those in `bad` is NaN or Inf.
  StepResult step(const std::vector<std::size_t>& bad = {}, float value = kNan,
                  const std::vector<std::size_t>& without = {}) {
    t().wait_all();
    for (std::size_t i = ids_.size(); i-- > 0;) {
      if (std::ranges::find(without, i) != without.end()) continue;
      std::vector<float> values = gradient(i);
      if (std::ranges::find(bad, i) != bad.end()) values.back() = value;
      t().give(ids_[i], values);
    }
    return engine().step();
  }
  std::vector<State> states() {
    std::vector<State> out;
    for (const ParameterId id : ids_) out.push_back(t().state(id));
    return out;
  }

  static constexpr std::array<std::size_t, 4> kSizes = {5, 300, 10000, 2000};
  LogLines log_;
  std::optional<ManualTrainer> trainer_;
  GroupId group_;
  std::vector<ParameterId> ids_;
};
INSTANTIATE_TEST_SUITE_P(Ways, OpenGate, ::testing::ValuesIn(open_flavours()),
                         [](const auto& test) { return flavour_name(test.param); });

// --- the protocol --------------------------------------------------------------------------------

TEST_P(OpenGate, RefusesWhatComesTooLateInAStep) {
  std::vector<float> values(kSizes[0]);
  const std::vector<std::pair<std::string, std::function<void()>>> calls = {
      {"set_group()", [&] { engine().set_group(group_, AdamW{.lr = 0.2}); }},
      {"discard()", [&] { engine().discard(); }},
      {"set_accumulation()", [&] { engine().set_accumulation(2); }},
      {"weights_changed()", [&] { engine().weights_changed(ids_[1], t().stream); }},
      {"synchronize()", [&] { engine().synchronize(); }},
      {"state_digest()", [&] { (void)engine().state_digest(); }},
      {"read_state()", [&] { engine().read_state(ids_[0], "master", values); }},
  };
  for (int round = 0; round < 2; ++round) {
    t().wait_all();
    t().give(ids_[3], gradient(3));
    for (const auto& [name, call] : calls) {
      SCOPED_TRACE(name);
      expect_error(ErrorCode::protocol_error, {name, "step()"}, call);
    }
    EXPECT_TRUE(engine().step().applied());
    t().wait_all();
    for (const auto& [name, call] : calls) EXPECT_NO_THROW(call()) << name;
    engine().set_accumulation(1);
  }
  EXPECT_EQ(engine().step_count(ids_[3]), 2u);
}

TEST_P(OpenGate, RefusesToWaitForARefreshThatThisStepMakes) {
  EXPECT_TRUE(step().applied());
  t().wait_all();
  t().give(ids_[2], gradient(2));
  expect_error(ErrorCode::protocol_error, {"wait()", "'w2'", "Schedule::open", "step()"},
               [&] { engine().wait(ids_[2], t().stream); });
  EXPECT_NO_THROW(engine().wait(ids_[0], t().stream)) << "its gradient has not been given";
  EXPECT_TRUE(engine().step().applied());
  EXPECT_NO_THROW(engine().wait(ids_[2], t().stream));
  EXPECT_EQ(engine().step_count(ids_[2]), 2u);
  EXPECT_EQ(engine().step_count(ids_[0]), 1u);
}

TEST_P(OpenGate, RefusesASecondGradientAndOneFromStaleWeights) {
  t().give(ids_[1], gradient(1));
  expect_error(ErrorCode::protocol_error, {"gradient_ready()", "'w1'", "second gradient"},
               [&] { t().give(ids_[1], gradient(1)); });
  EXPECT_TRUE(engine().step().applied());
  expect_error(ErrorCode::protocol_error, {"gradient_ready()", "'w1'", "wait()"},
               [&] { t().give(ids_[1], gradient(1)); });
  EXPECT_NO_THROW(t().give(ids_[0], gradient(0))) << "never refreshed: no wait() needed";
  EXPECT_TRUE(engine().step().applied());
  EXPECT_EQ(engine().step_count(ids_[1]), 1u);
  EXPECT_EQ(engine().step_count(ids_[0]), 1u);
}

TEST_P(OpenGate, NewHyperParametersHoldFromTheNextStepOn) {
  Config config;
  config.loss_scaling = {.dynamic = false, .initial_scale = 1.0};
  Flavour exact_way = GetParam();
  exact_way.schedule = Schedule::exact;
  std::vector<std::uint64_t> digests;
  for (const Flavour& flavour : {GetParam(), exact_way}) {
    ManualTrainer trainer(flavour.apply(config), flavour.device());
    const GroupId group = trainer.engine->add_group({.lr = 0.1});
    const ParameterId w = trainer.add("w", std::vector<float>(9000, 1.0F), group);
    trainer.engine->commit();
    for (int s = 1; s <= 4; ++s) {
      trainer.engine->set_group(group, AdamW{.lr = 0.1 / s});
      EXPECT_TRUE(trainer.step({{w, std::vector<float>(9000, 0.5F)}}).applied());
    }
    digests.push_back(trainer.engine->state_digest());
  }
  EXPECT_EQ(digests[0], digests[1]);
}

TEST_P(OpenGate, AnEmptyStepIsOne) {
  EXPECT_EQ(engine().step().outcome, StepOutcome::empty);
  EXPECT_TRUE(step().applied());
  EXPECT_EQ(engine().step().outcome, StepOutcome::empty);
  EXPECT_TRUE(step().applied());
}

/// Two parameters share a bucket. The second step's gradient comes while the first step's update of
/// the other, for which nobody has called wait(), is still running.
TEST_P(OpenGate, WaitsForAnUpdateOfTheSameBucketThatNobodyWaitedFor) {
  Config config;
  config.loss_scaling = {.dynamic = false, .initial_scale = 1.0};
  Flavour exact_way = GetParam();
  exact_way.schedule = Schedule::exact;
  std::vector<std::uint64_t> digests;
  double drained_us = 0.0;
  for (const Flavour& flavour : {exact_way, GetParam()}) {
    sim::Options device = flavour.device();
    device.rates.host_elems_per_s = {1e6};
    ManualTrainer trainer(flavour.apply(config), device);
    const GroupId group = trainer.engine->add_group({.lr = 0.1});
    const ParameterId a = trainer.add("a", std::vector<float>(1000, 1.0F), group);
    const ParameterId b = trainer.add("b", std::vector<float>(1000, 1.0F), group);
    trainer.engine->commit();
    for (int s = 0; s < 6; ++s) {
      const ParameterId given = s % 2 == 0 ? a : b;
      if (s > 1) trainer.engine->wait(given, trainer.stream);
      trainer.give(given, std::vector<float>(1000, 0.5F));
      EXPECT_TRUE(trainer.engine->step().applied());
    }
    digests.push_back(trainer.engine->state_digest());
    drained_us = trainer.engine->stats().drain_wait_us;
  }
  EXPECT_EQ(digests[0], digests[1]);
  const bool timed = GetParam().mode == sim::Mode::virtual_time;
  if (timed && GetParam().placement == Placement::host) {
    EXPECT_GT(drained_us, 0.0) << "nothing was tried";
  }
}

// --- partial steps -------------------------------------------------------------------------------

TEST_P(OpenGate, LeavesOutExactlyWhatIsNotFinite) {
  for (const std::vector<std::size_t>& bad :
       {std::vector<std::size_t>{2}, {0}, {3, 1}, {0, 1, 3}}) {
    SCOPED_TRACE("first bad " + std::to_string(bad[0]) + " of " + std::to_string(bad.size()));
    SetUp();  // a fresh engine
    EXPECT_TRUE(step().applied());
    const std::vector<State> before = states();
    const StepResult result = step(bad, -kInf);
    EXPECT_TRUE(result.partial());
    EXPECT_FALSE(result.applied() || result.skipped());
    const std::size_t first = *std::ranges::min_element(bad);
    ASSERT_TRUE(result.non_finite.has_value());
    EXPECT_EQ(result.non_finite->parameter, ids_[first]);
    EXPECT_EQ(result.non_finite->name, "w" + std::to_string(first));
    EXPECT_EQ(result.non_finite->element, kSizes[first] - 1);
    EXPECT_EQ(result.non_finite->count, 1u);
    EXPECT_FALSE(result.non_finite->is_nan);
    EXPECT_EQ(result.grad_norm, static_cast<double>(kInf));
    const std::vector<State> after = states();
    const StepStats stats = engine().stats();
    EXPECT_EQ(stats.steps_partial, 1u);
    EXPECT_EQ(stats.parameters_left_out, bad.size());
    // The others as if the bad ones had got no gradient.
    SetUp();
    EXPECT_TRUE(step().applied());
    EXPECT_TRUE(step({}, 0.0F, bad).applied());
    const std::vector<State> expected = states();
    for (std::size_t i = 0; i < ids_.size(); ++i) {
      const bool left_out = std::ranges::find(bad, i) != bad.end();
      EXPECT_EQ(after[i], expected[i]) << i;
      EXPECT_EQ(after[i] == before[i], left_out) << i;
    }
  }
}

TEST_P(OpenGate, SkipsAStepOfWhichNothingIsFinite) {
  EXPECT_TRUE(step().applied());
  const std::vector<State> before = states();
  const StepResult result = step({0, 1, 2, 3});
  EXPECT_TRUE(result.skipped());
  EXPECT_EQ(result.non_finite->name, "w0");
  EXPECT_TRUE(std::isnan(result.grad_norm));
  EXPECT_EQ(states(), before);
  EXPECT_EQ(engine().stats().steps_skipped, 1u);
  EXPECT_EQ(engine().stats().parameters_left_out, 4u);
  EXPECT_TRUE(step().applied());
}

/// What was left out needs no wait(): nothing refreshed it.
TEST_P(OpenGate, TakesTheNextGradientOfWhatWasLeftOut) {
  EXPECT_TRUE(step({1}).partial());
  t().give(ids_[1], gradient(1));
  EXPECT_TRUE(engine().step().applied());
  EXPECT_EQ(engine().step_count(ids_[1]), 1u);
  EXPECT_TRUE(step().applied());
}

TEST_P(OpenGate, LeavesOutAGradientTooLargeForTheStateByName) {
  ManualTrainer other(GetParam().apply({.log = log_.sink()}), GetParam().device());
  other.dtype = DType::f32;
  const GroupId group = other.engine->add_group({});
  const ParameterId huge = other.add("huge", {1.0F, 2.0F}, group);
  const ParameterId fine = other.add("fine", {1.0F}, group);
  other.engine->commit();
  const State before = other.state(huge);
  const StepResult result = other.step({{fine, {1.0F}}, {huge, {1e30F, 1.0F}}});
  EXPECT_TRUE(result.partial());
  EXPECT_FALSE(result.non_finite.has_value());
  EXPECT_GE(result.grad_norm, 0x1p63);
  EXPECT_EQ(other.state(huge), before);
  EXPECT_EQ(other.engine->step_count(fine), 1u);
  EXPECT_EQ(log_.warnings({"partial", "1 of 2", "'huge'", "2^63"}), 1u) << log_.all();
}

TEST_P(OpenGate, LogsTheFirstOfARowAndItsEnd) {
  EXPECT_TRUE(step().applied());
  EXPECT_TRUE(step({1}).partial());
  EXPECT_EQ(log_.warnings({"step 2 partial", "1 of 4 parameters", "'w1'", "NaN", "element 299"}),
            1u)
      << log_.all();
  EXPECT_TRUE(step({1}).partial());
  EXPECT_TRUE(step({0, 1, 2, 3}).skipped());
  EXPECT_EQ(log_.texts().size(), 1u) << log_.all();
  EXPECT_TRUE(step().applied());
  EXPECT_EQ(log_.warnings({"step 5 applied after 3", "left parameters out"}), 1u) << log_.all();
  EXPECT_EQ(log_.texts().size(), 2u) << log_.all();
}

TEST_P(OpenGate, GivesUpAfterTooManyInARow) {
  for (int s = 0; s < 3; ++s) EXPECT_TRUE(step({2}).partial());
  expect_error(ErrorCode::numerics, {"4 steps in a row", "'w2'", "give_up_after"},
               [&] { step({2}); });
  // The others were updated all the while, and training can go on.
  EXPECT_EQ(engine().step_count(ids_[0]), 4u);
  EXPECT_EQ(engine().step_count(ids_[2]), 0u);
  EXPECT_TRUE(step().applied());
}

// --- the report of a step ------------------------------------------------------------------------

TEST_P(OpenGate, ReportsTheNormOfAllGradients) {
  const StepResult result = step();
  double elems = 0.0;
  for (const std::size_t size : kSizes) elems += static_cast<double>(size);
  EXPECT_DOUBLE_EQ(result.grad_norm, 0.5 * std::sqrt(elems));
  EXPECT_EQ(result.clip, 1.0);
  EXPECT_EQ(result.loss_scale, 1.0);
  EXPECT_EQ(result.next_loss_scale, 1.0);
  const StepResult fewer = step({}, 0.0F, {2});
  EXPECT_DOUBLE_EQ(fewer.grad_norm, 0.5 * std::sqrt(elems - static_cast<double>(kSizes[2])));
}

TEST_P(OpenGate, FetchesEachParametersScalarsOnce) {
  EXPECT_TRUE(step().applied());
  engine().synchronize();
  t().gpu.synchronize();  // counts of overflowed weights are not sent while some are on their way
  const StepStats before = engine().stats();
  EXPECT_TRUE(step().applied());
  const StepStats after = engine().stats();
  const bool by_device = GetParam().placement != Placement::host;
  const std::uint64_t bytes = after.gate_bytes_down - before.gate_bytes_down;
  EXPECT_LE(bytes, (by_device ? 32u : 24u) * kSizes.size());
  // On threads the counts of an earlier bucket may be on their way at any later one's.
  const bool counts_come = by_device && GetParam().mode == sim::Mode::virtual_time;
  EXPECT_GE(bytes, (counts_come ? 32u : 24u) * kSizes.size());
  EXPECT_LE(after.host_device_syncs - before.host_device_syncs, 4u);
}

/// More micro-batches than announced would change a sum that the update may have read.
TEST_P(OpenGate, RefusesMoreMicroBatchesThanAnnounced) {
  Config config;
  config.accumulate = Accumulate::host;
  config.accumulation = 2;
  Flavour sums = GetParam();
  sums.accumulate = Accumulate::host;
  ManualTrainer other(sums.apply(config), sums.device());
  const ParameterId w = other.add("w", std::vector<float>(9000, 1.0F), other.engine->add_group({}));
  other.engine->commit();
  const std::vector<float> ones(9000, 1.0F);
  other.give(w, ones);
  EXPECT_NO_THROW(other.engine->wait(w, other.stream)) << "one more forward reads it";
  other.give(w, ones);
  expect_error(ErrorCode::protocol_error, {"'w'", "2 micro-batches", "step()"},
               [&] { other.give(w, ones); });
  EXPECT_TRUE(other.engine->step().applied());
  other.wait_all();
  other.give(w, ones);  // fewer are fine
  EXPECT_TRUE(other.engine->step().applied());
  EXPECT_EQ(other.engine->step_count(w), 2u);
}

}  // namespace
}  // namespace outboard::testing
