// SPDX-License-Identifier: Apache-2.0
/// A suite of broken trainers, one mistake each: every mistake is named, with the parameter and a
/// remedy, and changes nothing.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "engine/flavours.hpp"
#include "support/expect_error.hpp"
#include "support/manual_trainer.hpp"

namespace outboard::testing {
namespace {

using State = ManualTrainer::State;
constexpr float kInf = std::numeric_limits<float>::infinity();

Config plain_scale() {
  Config config;
  config.loss_scaling.dynamic = false;
  config.loss_scaling.initial_scale = 1.0;
  return config;
}

/// Two parameters and a group, committed unless a test asks otherwise.
class BrokenTrainer : public ::testing::TestWithParam<Flavour> {
 protected:
  void SetUp() override {
    trainer_.emplace(GetParam().apply(plain_scale()), GetParam().device());
    group_ = engine().add_group({.lr = 0.1});
    first_ = t().add("block.0.weight", {1.0F, 2.0F}, group_);
    second_ = t().add("block.1.weight", {3.0F}, group_);
  }
  ManualTrainer& t() { return trainer_.value(); }
  Engine& engine() { return *t().engine; }
  /// One good step, and the waits after it.
  void good_step() {
    const StepResult result = t().step({{second_, {0.5F}}, {first_, {0.5F, 0.25F}}});
    EXPECT_TRUE(result.applied());
    t().wait_all();
  }
  /// The engine still works, and did not count the mistake.
  void expect_sound(std::uint64_t steps_before) {
    good_step();
    EXPECT_EQ(engine().step_count(first_), steps_before + 1);
    EXPECT_EQ(engine().step_count(second_), steps_before + 1);
  }
  ParameterSpec spec(const std::string& name) {
    ParameterSpec out;
    out.name = name;
    out.elems = 2;
    out.group = group_;
    return out;
  }

  std::optional<ManualTrainer> trainer_;
  GroupId group_;
  ParameterId first_, second_;
};
INSTANTIATE_TEST_SUITE_P(Ways, BrokenTrainer, ::testing::ValuesIn(all_flavours()),
                         [](const auto& test) { return flavour_name(test.param); });
/// With host placement a gradient may be reused as soon as it was taken.
using BrokenResidentTrainer = BrokenTrainer;
INSTANTIATE_TEST_SUITE_P(Ways, BrokenResidentTrainer,
                         ::testing::ValuesIn(flavours_where([](const Flavour& flavour) {
                           return flavour.placement == Placement::device_resident;
                         })),
                         [](const auto& test) { return flavour_name(test.param); });

// --- at the wrong time ---------------------------------------------------------------------------

TEST_P(BrokenTrainer, ForgetsToWait) {
  engine().commit();
  good_step();
  t().step({{first_, {1.0F, 1.0F}}, {second_, {1.0F}}});
  engine().wait(first_, t().stream);
  t().give(first_, {1.0F, 1.0F});
  expect_error(ErrorCode::protocol_error, {"block.1.weight", "wait"},
               [&] { t().give(second_, {1.0F}); });
  // The remedy works.
  engine().wait(second_, t().stream);
  t().give(second_, {1.0F});
  EXPECT_TRUE(engine().step().applied());
  EXPECT_EQ(engine().step_count(second_), 3u);
}

TEST_P(BrokenTrainer, MayWaitAsOftenAsItLikes) {
  engine().commit();
  for (int i = 0; i < 3; ++i) {
    t().wait_all();
    t().wait_all();
    good_step();
  }
}

TEST_P(BrokenTrainer, NeedsNoWaitAfterASkippedStep) {
  engine().commit();
  good_step();
  EXPECT_TRUE(t().step({{first_, {kInf, 1.0F}}, {second_, {1.0F}}}).skipped());
  t().give(first_, {1.0F, 1.0F});
  t().give(second_, {1.0F});
  EXPECT_TRUE(engine().step().applied());
}

TEST_P(BrokenTrainer, NeedsNoWaitForAParameterWithoutGradient) {
  engine().commit();
  good_step();
  EXPECT_TRUE(t().step({{first_, {1.0F, 1.0F}}}).applied());
  t().give(second_, {1.0F});
  EXPECT_TRUE(engine().step().applied());
}

TEST_P(BrokenTrainer, MissesARefreshOlderThanASkippedStep) {
  engine().commit();
  EXPECT_TRUE(t().step({{first_, {1.0F, 1.0F}}, {second_, {1.0F}}}).applied());
  // The other parameter's step is skipped; the first one's refresh was still never waited for.
  engine().wait(second_, t().stream);
  t().give(second_, {kInf});
  EXPECT_TRUE(engine().step().skipped());
  expect_error(ErrorCode::protocol_error, {"block.0.weight", "wait"}, [&] {
    t().give(first_, {1.0F, 1.0F});
  });
}

TEST_P(BrokenTrainer, GivesASecondGradient) {
  engine().commit();
  good_step();
  t().give(first_, {1.0F, 1.0F});
  expect_error(ErrorCode::protocol_error, {"block.0.weight", "second gradient", "discard()"}, [&] {
    t().give(first_, {1.0F, 1.0F});
  });
  EXPECT_TRUE(engine().step().applied());
  EXPECT_EQ(engine().step_count(first_), 2u);
}

TEST_P(BrokenTrainer, GivesAGradientRightAfterStep) {
  engine().commit();
  t().step({{first_, {1.0F, 1.0F}}});
  expect_error(ErrorCode::protocol_error, {"block.0.weight", "wait"}, [&] {
    t().give(first_, {1.0F, 1.0F});
  });
}

TEST_P(BrokenTrainer, ForgetsToCommit) {
  const void* const gradient = t().make({1.0F, 1.0F});
  const auto refused = [&](const char* call, auto&& body) {
    SCOPED_TRACE(call);
    expect_error(ErrorCode::protocol_error, {call, "commit()"}, body);
  };
  Engine& e = engine();
  float value[2] = {};
  refused("wait", [&] { e.wait(first_, t().stream); });
  refused("gradient_ready", [&] { e.gradient_ready(first_, gradient, t().stream); });
  refused("wait_gradient_taken", [&] { e.wait_gradient_taken(first_, t().stream); });
  refused("step", [&] { e.step(); });
  refused("discard", [&] { e.discard(); });
  refused("weights_changed", [&] { e.weights_changed(first_, t().stream); });
  refused("synchronize", [&] { e.synchronize(); });
  refused("state_digest", [&] { (void)e.state_digest(); });
  refused("read_state",
          [&] { e.read_state(first_, {.master = value, .exp_avg = {}, .exp_avg_sq = {}}); });
  refused("step_count", [&] { (void)e.step_count(first_); });
  refused("loss_scale", [&] { (void)e.loss_scale(); });
  refused("ledger", [&] { (void)e.ledger(); });
  e.commit();
  expect_sound(0);
}

TEST_P(BrokenTrainer, AddsOrCommitsInTheMiddleOfAStep) {
  engine().commit();
  ParameterSpec late = spec("late");
  late.data = t().make({1.0F, 2.0F});
  ParameterSpec later = spec("later");
  later.data = t().make({1.0F, 2.0F});
  engine().add_parameter(late);
  t().give(first_, {0.5F, 0.25F});
  const char* const pending = "'block.0.weight' is pending";
  expect_error(ErrorCode::protocol_error, {"later", pending, "step()"},
               [&] { engine().add_parameter(later); });
  expect_error(ErrorCode::protocol_error, {"add_group()", pending},
               [&] { engine().add_group({}); });
  expect_error(ErrorCode::protocol_error, {"commit()", pending}, [&] { engine().commit(); });
  EXPECT_TRUE(engine().step().applied());
  t().wait_all();
  engine().commit();
  engine().add_parameter(later);
  good_step();  // it is not committed and takes no part
  EXPECT_EQ(engine().step_count(first_), 2u);
  EXPECT_EQ(engine().step_count(second_), 1u);
}

TEST_P(BrokenTrainer, ChangesAWeightWithItsGradientPending) {
  engine().commit();
  good_step();
  t().give(first_, {1.0F, 1.0F});
  expect_error(ErrorCode::protocol_error, {"block.0.weight", "step()"},
               [&] { engine().weights_changed(first_, t().stream); });
  EXPECT_TRUE(engine().step().applied());
  EXPECT_EQ(engine().step_count(first_), 2u);
}

TEST_P(BrokenTrainer, WaitsForAGradientThatItNeverGave) {
  engine().commit();
  expect_error(ErrorCode::protocol_error, {"block.0.weight", "gradient_ready"},
               [&] { engine().wait_gradient_taken(first_, t().stream); });
  expect_sound(0);
}

TEST_P(BrokenResidentTrainer, ReusesAResidentGradientBeforeStep) {
  engine().commit();
  t().give(first_, {1.0F, 1.0F});
  expect_error(ErrorCode::protocol_error, {"block.0.weight", "step()"},
               [&] { engine().wait_gradient_taken(first_, t().stream); });
  EXPECT_TRUE(engine().step().applied());
  engine().wait_gradient_taken(first_, t().stream);
}

// --- the wrong thing -----------------------------------------------------------------------------

TEST_P(BrokenTrainer, NamesUnknownIds) {
  const ParameterId unknown{7};
  ParameterSpec bad = spec("w");
  bad.data = t().make({1.0F, 2.0F});
  bad.group = GroupId{5};
  expect_error(ErrorCode::invalid_argument, {"w", "group", "5"},
               [&] { engine().add_parameter(bad); });
  bad.group = GroupId{};
  expect_error(ErrorCode::invalid_argument, {"w", "group"}, [&] { engine().add_parameter(bad); });
  engine().commit();
  const void* const gradient = t().make({1.0F, 1.0F});
  const auto refused = [&](auto&& body) {
    expect_error(ErrorCode::invalid_argument, {"7", "2"}, body);
  };
  float value[2] = {};
  refused([&] { engine().wait(unknown, t().stream); });
  refused([&] { engine().gradient_ready(unknown, gradient, t().stream); });
  refused([&] { engine().wait_gradient_taken(unknown, t().stream); });
  refused([&] { engine().weights_changed(unknown, t().stream); });
  refused([&] { (void)engine().step_count(unknown); });
  refused(
      [&] { engine().read_state(unknown, {.master = value, .exp_avg = {}, .exp_avg_sq = {}}); });
  expect_error(ErrorCode::invalid_argument, {"group", "9"},
               [&] { engine().set_group(GroupId{9}, {}); });
  expect_sound(0);
}

TEST_P(BrokenTrainer, HandsInAWrongWeightAddress) {
  sim::Gpu other(GetParam().device());
  void* const foreign = other.allocate(4);
  std::array<std::uint16_t, 2> on_the_host{};
  void* const ours = t().make({1.0F, 2.0F});
  const std::vector<std::pair<std::string, void*>> wrong = {
      {"null", nullptr},
      {"host", on_the_host.data()},
      {"foreign", foreign},
      {"odd", static_cast<std::byte*>(ours) + 1},
  };
  for (const auto& [name, data] : wrong) {
    SCOPED_TRACE(name);
    ParameterSpec bad = spec("w_" + name);
    bad.data = data;
    expect_error(ErrorCode::invalid_argument, {"w_" + name, "data"},
                 [&] { engine().add_parameter(bad); });
  }
  ParameterSpec long_one = spec("too_long");
  long_one.data = ours;
  long_one.elems = 1000;  // beyond the allocation
  expect_error(ErrorCode::invalid_argument, {"too_long", "data"},
               [&] { engine().add_parameter(long_one); });
  long_one.elems = UINT64_MAX / 2 + 2;  // its bytes wrap around
  expect_error(ErrorCode::invalid_argument, {"too_long"},
               [&] { engine().add_parameter(long_one); });
  engine().commit();
  expect_sound(0);
}

TEST_P(BrokenTrainer, HandsInAWrongGradientAddress) {
  engine().commit();
  sim::Gpu other(GetParam().device());
  void* const foreign = other.allocate(4);
  const std::array<std::uint16_t, 2> on_the_host{};
  const void* const odd = static_cast<const std::byte*>(t().gpu.allocate(8)) + 1;
  void* const released = t().gpu.allocate(4);
  t().gpu.release(released);
  for (const void* gradient : std::vector<const void*>{nullptr, on_the_host.data(), foreign,
                                                       static_cast<const void*>(released), odd}) {
    expect_error(ErrorCode::invalid_argument, {"block.0.weight", "gradient"},
                 [&] { engine().gradient_ready(first_, gradient, t().stream); });
  }
  expect_sound(0);
}

TEST_P(BrokenTrainer, HandsInAGradientThatIsTooShort) {
  const ParameterId large = t().add("large", std::vector<float>(9000, 1.0F), group_);
  engine().commit();
  const void* const small = t().make({1.0F, 2.0F});
  expect_error(ErrorCode::invalid_argument, {"large", "gradient", "18000"},
               [&] { engine().gradient_ready(large, small, t().stream); });
  expect_sound(0);
}

TEST_P(BrokenTrainer, UsesAStreamThatIsNotThere) {
  engine().commit();
  sim::Gpu other(GetParam().device());
  std::vector<NativeStream> wrong = {NativeStream{123456789}};
  for (int i = 0; i < 20; ++i) wrong.push_back(other.create_stream("foreign"));
  const NativeStream destroyed = t().gpu.create_stream("destroyed");
  t().gpu.destroy_stream(destroyed);
  wrong.push_back(destroyed);
  const void* const gradient = t().make({1.0F, 1.0F});
  for (const NativeStream stream : wrong) {
    expect_error(ErrorCode::invalid_argument, {"stream"}, [&] { engine().wait(first_, stream); });
    expect_error(ErrorCode::invalid_argument, {"stream"},
                 [&] { engine().gradient_ready(first_, gradient, stream); });
    expect_error(ErrorCode::invalid_argument, {"stream"},
                 [&] { engine().weights_changed(first_, stream); });
  }
  expect_sound(0);
}

TEST_P(BrokenTrainer, AsksForADtypeThatIsNone) {
  ParameterSpec bad = spec("other_dtype");
  bad.data = t().make({1.0F, 2.0F, 3.0F, 4.0F});
  bad.dtype = static_cast<DType>(3);
  expect_error(ErrorCode::unsupported, {"other_dtype", "dtype 3", "DType::f16"},
               [&] { engine().add_parameter(bad); });
  engine().commit();
  expect_sound(0);
}

TEST_P(BrokenTrainer, UsesANameTwice) {
  ParameterSpec again = spec("block.0.weight");
  again.data = t().make({1.0F, 2.0F});
  expect_error(ErrorCode::invalid_argument, {"block.0.weight", "registered already"},
               [&] { engine().add_parameter(again); });
  ParameterSpec unnamed = spec("");
  unnamed.data = again.data;
  expect_error(ErrorCode::invalid_argument, {"name"}, [&] { engine().add_parameter(unnamed); });
  engine().commit();
  expect_sound(0);
}

TEST_P(BrokenTrainer, HandsInMastersOfAnotherSize) {
  const std::vector<float> three(3, 1.0F);
  ParameterSpec bad = spec("w");
  bad.data = t().make({1.0F, 2.0F});
  bad.master = three;
  expect_error(ErrorCode::invalid_argument, {"w", "master", "3", "2"},
               [&] { engine().add_parameter(bad); });
  engine().commit();
  expect_sound(0);
}

TEST_P(BrokenTrainer, ReadsStateIntoAWrongSize) {
  engine().commit();
  std::vector<float> three(3);
  expect_error(ErrorCode::invalid_argument, {"block.0.weight", "3", "2"}, [&] {
    engine().read_state(first_, {.master = {}, .exp_avg = three, .exp_avg_sq = {}});
  });
  expect_sound(0);
}

TEST_P(BrokenTrainer, SetsHyperParametersThatCannotBe) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  struct Case {
    const char* field;
    double AdamW::*member;
    std::vector<double> values;
  };
  const std::vector<Case> cases = {
      {"lr", &AdamW::lr, {kNan, -1e-3, kInfinite}},
      {"beta1", &AdamW::beta1, {kNan, -0.1, 1.0, 1.5}},
      {"beta2", &AdamW::beta2, {kNan, -0.1, 1.0, 1.5}},
      {"eps", &AdamW::eps, {kNan, -1e-8, 0.0, 9e-16, kInfinite}},
      {"weight_decay", &AdamW::weight_decay, {kNan, -0.1, kInfinite}},
  };
  engine().commit();
  good_step();
  for (const Case& c : cases) {
    for (const double value : c.values) {
      AdamW bad{.lr = 0.1};
      bad.*c.member = value;
      SCOPED_TRACE(std::string(c.field) + " " + std::to_string(value));
      expect_error(ErrorCode::invalid_config, {c.field}, [&] { bad.validate(); });
      expect_error(ErrorCode::invalid_config, {c.field}, [&] { engine().set_group(group_, bad); });
      Engine fresh(t().gpu.device(), GetParam().apply(plain_scale()));
      expect_error(ErrorCode::invalid_config, {c.field}, [&] { fresh.add_group(bad); });
    }
  }
  // The settings of before are still in force.
  good_step();
  EXPECT_NEAR(t().state(second_).p[0], 2.8, 1e-5);
}

}  // namespace
}  // namespace outboard::testing
