// SPDX-License-Identifier: Apache-2.0
/// Groups of different rules: their settings, the memory they take, what they say of themselves.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/every_rule.hpp"
#include "engine/flavours.hpp"
#include "support/expect_error.hpp"
#include "support/manual_trainer.hpp"

namespace outboard::testing {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(RuleSettings, AreRefusedByName) {
  struct Case {
    Rule rule;
    const char* field;
  };
  const std::vector<Case> cases = {
      {Adam{.lr = -1.0}, "Adam::lr"},
      {Adam{.beta1 = 1.0}, "Adam::beta1"},
      {Adam{.beta2 = -0.1}, "Adam::beta2"},
      {Adam{.eps = 0.0}, "Adam::eps"},
      {Adam{.weight_decay = kNan}, "Adam::weight_decay"},
      {Sgd{.lr = kNan}, "Sgd::lr"},
      {Sgd{.momentum = 1.0}, "Sgd::momentum"},
      {Sgd{.momentum = 0.9, .dampening = 1.5}, "Sgd::dampening"},
      {Sgd{.nesterov = true}, "Sgd::nesterov"},
      {Sgd{.momentum = 0.9, .dampening = 0.1, .nesterov = true}, "Sgd::nesterov"},
      {Sgd{.weight_decay = -1.0}, "Sgd::weight_decay"},
      {Lion{.lr = 1e39}, "Lion::lr"},
      {Lion{.beta1 = 1.5}, "Lion::beta1"},
      {Lion{.beta2 = kNan}, "Lion::beta2"},
      {Lion{.lr = 1e30, .weight_decay = 1e30}, "Lion::weight_decay"},
      {Adagrad{.lr = -0.1}, "Adagrad::lr"},
      {Adagrad{.lr_decay = -1.0}, "Adagrad::lr_decay"},
      {Adagrad{.initial_accumulator = -1.0}, "Adagrad::initial_accumulator"},
      {Adagrad{.eps = 1e-16}, "Adagrad::eps"},
      {Adagrad{.weight_decay = kNan}, "Adagrad::weight_decay"},
      {Lamb{.lr = kNan}, "Lamb::lr"},
      {Lamb{.beta1 = -1.0}, "Lamb::beta1"},
      {Lamb{.beta2 = 1.0}, "Lamb::beta2"},
      {Lamb{.eps = 0.0}, "Lamb::eps"},
      {Lamb{.weight_decay = -1.0}, "Lamb::weight_decay"},
  };
  const sim::Gpu gpu(virtual_device());
  Engine engine(gpu.device());
  for (const Case& c : cases) {
    SCOPED_TRACE(c.field);
    expect_error(ErrorCode::invalid_config, {c.field, "allowed"},
                 [&] { engine.add_group(c.rule); });
    Rule good;
    for (const NamedRule& rule : every_rule()) {
      if (rule.group.rule.index() == c.rule.index()) good = rule.group.rule;
    }
    const GroupId group = engine.add_group(good);
    expect_error(ErrorCode::invalid_config, {c.field}, [&] { engine.set_group(group, c.rule); });
  }
  expect_error(ErrorCode::invalid_config, {"GroupOptions::ema_decay"},
               [&] { engine.add_group(AdamW{}, {.ema_decay = 1.0}); });
  expect_error(ErrorCode::invalid_config, {"GroupOptions::rounding"},
               [&] { engine.add_group(AdamW{}, {.rounding = static_cast<Rounding>(9)}); });
  for (const NamedRule& rule : every_rule()) EXPECT_NO_THROW(engine.add_group(rule.group.rule));
}

TEST(RuleSettings, AGroupKeepsItsRule) {
  const sim::Gpu gpu(virtual_device());
  Engine engine(gpu.device());
  const GroupId adamw = engine.add_group(AdamW{});
  const GroupId plain = engine.add_group(Sgd{});
  const GroupId heavy = engine.add_group(Sgd{.momentum = 0.9});
  expect_error(ErrorCode::invalid_config, {"group 0", "AdamW", "Adam", "another group"},
               [&] { engine.set_group(adamw, Adam{}); });
  expect_error(ErrorCode::invalid_config, {"group 1", "without momentum", "Sgd::momentum"},
               [&] { engine.set_group(plain, Sgd{.momentum = 0.5}); });
  expect_error(ErrorCode::invalid_config, {"group 2", "with momentum"},
               [&] { engine.set_group(heavy, Sgd{}); });
  engine.set_group(adamw, {.lr = 0.5});  // in braces: AdamW
  engine.set_group(plain, Sgd{.lr = 0.5});
  engine.set_group(heavy, Rule(Sgd{.momentum = 0.5}));
}

class RuleGroups : public ::testing::TestWithParam<Flavour> {
 protected:
  [[nodiscard]] Config config() const {
    Config config;
    config.loss_scaling = {.dynamic = false, .initial_scale = 1.0};
    return GetParam().apply(config);
  }
};
INSTANTIATE_TEST_SUITE_P(Ways, RuleGroups, ::testing::ValuesIn(all_flavours()),
                         [](const auto& test) { return flavour_name(test.param); });
/// Where one node has all of the state. Streamed state is pinned, as staging is, and takes no Lamb.
using OneNodeRuleGroups = RuleGroups;
INSTANTIATE_TEST_SUITE_P(Ways, OneNodeRuleGroups,
                         ::testing::ValuesIn(flavours_where([](const Flavour& flavour) {
                           return flavour.topology == Flavour{}.topology &&
                                  flavour.placement != Placement::device_streamed;
                         })),
                         [](const auto& test) { return flavour_name(test.param); });

/// Bytes of each stream per parameter, by the ledger; staging and scalars left out.
std::vector<std::pair<std::string, std::size_t>> streams(const Engine& engine, std::size_t elems) {
  std::vector<std::pair<std::string, std::size_t>> out;
  for (const LedgerEntry& entry : engine.ledger().entries) {
    const bool state = entry.place != MemoryPlace::host_pinned && entry.node == 0 &&
                       entry.purpose.find("staging") == std::string::npos &&
                       entry.purpose.find("ring") == std::string::npos &&
                       entry.purpose.find("norms") == std::string::npos &&
                       entry.purpose.find("scalars") == std::string::npos;
    if (state) out.emplace_back(entry.purpose, entry.bytes / elems);
  }
  return out;
}

TEST_P(OneNodeRuleGroups, StateTakesTheBytesOfItsRule) {
  using Streams = std::vector<std::pair<std::string, std::size_t>>;
  const auto expect = [&](const Rule& rule, const GroupOptions& options, const Streams& wanted) {
    SCOPED_TRACE(rule_name(rule));
    ManualTrainer trainer(config(), GetParam().device());
    const GroupId group = trainer.engine->add_group(rule, options);
    (void)trainer.engine->add_group(AdamW{});  // of no parameter: takes nothing
    trainer.add("w", std::vector<float>(16384, 1.0F), group);
    trainer.engine->commit();
    EXPECT_EQ(streams(*trainer.engine, 16384), wanted);
  };
  const Streams twelve = {{"master weight", 4}, {"exp_avg", 4}, {"exp_avg_sq", 4}};
  expect(AdamW{}, {}, twelve);
  expect(Adam{}, {}, twelve);
  expect(Lamb{}, {}, twelve);
  expect(Lion{}, {}, {{"master weight", 4}, {"exp_avg", 4}});
  expect(Adagrad{}, {}, {{"master weight", 4}, {"sum", 4}});
  expect(Sgd{.momentum = 0.9}, {}, {{"master weight", 4}, {"momentum_buffer", 4}});
  expect(Sgd{}, {}, {{"master weight", 4}});
  expect(Sgd{}, {.ema_decay = 0.9}, {{"master weight", 4}, {"ema", 4}});
  expect(Lion{}, {.ema_decay = 0.9}, {{"master weight", 4}, {"exp_avg", 4}, {"ema", 4}});
}

TEST_P(OneNodeRuleGroups, TheWidestRuleSizesTheStateOfAll) {
  ManualTrainer trainer(config(), GetParam().device());
  const GroupId sgd = trainer.engine->add_group(Sgd{.momentum = 0.9});
  const GroupId lion = trainer.engine->add_group(Lion{}, {.ema_decay = 0.9});
  trainer.add("a", std::vector<float>(8192, 1.0F), sgd);
  trainer.add("b", std::vector<float>(8192, 1.0F), lion);
  trainer.engine->commit();
  const std::vector<std::pair<std::string, std::size_t>> wanted = {
      {"master weight", 4}, {"momentum_buffer, exp_avg", 4}, {"ema", 4}};
  EXPECT_EQ(streams(*trainer.engine, 16384), wanted);
}

TEST_P(RuleGroups, StreamsAreReadByName) {
  if (GetParam().placement == Placement::device_streamed) GTEST_SKIP() << "refuses Lamb";
  ManualTrainer trainer(config(), GetParam().device());
  const GroupId sgd = trainer.engine->add_group(Sgd{.momentum = 0.9});
  const GroupId adagrad =
      trainer.engine->add_group(Adagrad{.initial_accumulator = 2.0}, {.ema_decay = 0.5});
  const GroupId lamb = trainer.engine->add_group(Lamb{});
  const ParameterId a = trainer.add("a", {1.0F, 2.0F}, sgd);
  const ParameterId b = trainer.add("b", {3.0F}, adagrad);
  const ParameterId c = trainer.add("c", {5.0F}, lamb);
  trainer.engine->commit();
  using Names = std::vector<std::string_view>;
  EXPECT_EQ(trainer.engine->state_streams(a), (Names{"master", "momentum_buffer"}));
  EXPECT_EQ(trainer.engine->state_streams(b), (Names{"master", "sum", "ema"}));
  EXPECT_EQ(trainer.engine->state_streams(c), (Names{"master", "exp_avg", "exp_avg_sq"}));
  std::vector<float> master(1), sum(1), ema(1);
  trainer.engine->read_state(b, {.master = master, .sum = sum, .ema = ema});
  EXPECT_EQ(master[0], 3.0F);
  EXPECT_EQ(sum[0], 2.0F);
  EXPECT_EQ(ema[0], 3.0F);
  trainer.step({{a, {0.5F, -0.5F}}, {b, {2.0F}}, {c, {1.0F}}});
  std::vector<float> buffer(2);
  trainer.engine->read_state(a, {.momentum_buffer = buffer});
  EXPECT_EQ(buffer, (std::vector<float>{0.5F, -0.5F}));
  trainer.engine->read_state(b, "sum", sum);
  EXPECT_EQ(sum[0], 6.0F);
  expect_error(ErrorCode::invalid_argument, {"'a'", "exp_avg_sq", "Sgd", "master, momentum_buffer"},
               [&] { trainer.engine->read_state(a, {.exp_avg_sq = buffer}); });
  expect_error(ErrorCode::invalid_argument, {"'c'", "ema", "Lamb"},
               [&] { trainer.engine->read_state(c, "ema", ema); });
  expect_error(ErrorCode::invalid_argument, {"'a'", "2 elements", "1"},
               [&] { trainer.engine->read_state(a, "master", master); });
}

TEST_P(RuleGroups, TheAverageFollowsTheMaster) {
  ManualTrainer trainer(config(), GetParam().device());
  const GroupId group = trainer.engine->add_group(Sgd{.lr = 1.0}, {.ema_decay = 0.75});
  const ParameterId w = trainer.add("w", {8.0F}, group);
  trainer.engine->commit();
  double average = 8.0;
  double master = 8.0;
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(trainer.step({{w, {1.0F}}}).applied());
    master -= 1.0;
    average = 0.75 * average + 0.25 * master;
  }
  const auto state = trainer.state(w);
  EXPECT_EQ(state.p[0], 4.0F);
  EXPECT_NEAR(state.ema[0], average, 1e-6);
}

/// The mean of many weights is their master's value, which lies between two bf16 numbers.
TEST_P(RuleGroups, StochasticRoundingKeepsTheMean) {
  ManualTrainer trainer(config(), GetParam().device());
  const GroupId group =
      trainer.engine->add_group(Sgd{.lr = 0.0}, {.rounding = Rounding::stochastic, .seed = 3});
  constexpr std::size_t kElems = 20000;
  const float value = 1.0F + 0.25F / 128.0F;  // a quarter of the way from 1 to the next
  const std::vector<float> masters(kElems, value);
  const ParameterId w = trainer.add("w", masters, group, masters, DType::bf16);
  trainer.engine->commit();
  trainer.step({{w, std::vector<float>(kElems, 1.0F)}});
  std::size_t up = 0;
  for (const std::uint16_t bits : trainer.state(w).weight) {
    ASSERT_TRUE(bits == 0x3F80 || bits == 0x3F81) << bits;
    up += bits == 0x3F81 ? 1 : 0;
  }
  // Five standard deviations of a binomial.
  EXPECT_NEAR(static_cast<double>(up), kElems * 0.25, 5.0 * std::sqrt(kElems * 0.25 * 0.75));
}

/// Trust ratio by hand: ||p|| = 5, both elements move by lr * 5 / ||u|| * u.
TEST_P(RuleGroups, LambScalesByTheNormOfTheWholeParameter) {
  if (GetParam().placement == Placement::device_streamed) GTEST_SKIP() << "refuses Lamb";
  ManualTrainer trainer(config(), GetParam().device());
  const GroupId group = trainer.engine->add_group(Lamb{.lr = 0.1, .eps = 1e-15});
  const ParameterId w = trainer.add("w", {3.0F, 4.0F}, group);
  // Nothing to scale by: the ratio is 1.
  const ParameterId zero = trainer.add("zero", {0.0F}, group);
  trainer.engine->commit();
  trainer.step({{w, {0.5F, -0.5F}}, {zero, {0.5F}}});  // the first step's u is the sign of g
  const auto state = trainer.state(w);
  EXPECT_NEAR(state.p[0], 3.0 - 0.1 * 5.0 / std::sqrt(2.0), 1e-6);
  EXPECT_NEAR(state.p[1], 4.0 + 0.1 * 5.0 / std::sqrt(2.0), 1e-6);
  EXPECT_NEAR(trainer.state(zero).p[0], -0.1, 1e-6);
}

/// The refresh of the first parameter waits for its own norm, not for that of the last: its two
/// buckets take both phases before any other bucket, but for one whose gradients came first.
TEST(TwoPhases, KeepForwardOrder) {
  constexpr std::int64_t kMeasureNs = 4096 * 22 / 28;  // gradient, master, moments twice
  constexpr std::int64_t kApplyNs = 4096 * 18 / 28;    // moments, master twice, weight
  TinyOptions options;
  options.device = virtual_device();
  options.device.rates.host_elems_per_s = {1e9};
  options.config.bucket_bytes = 8192;
  options.config.loss_scaling = {.dynamic = false, .initial_scale = 1.0};
  options.config.host.synthetic_topology = "numa:1 core:2 pu:1";
  options.rules = {{Lamb{}}};
  options.parameters = {{.name = "first", .elems = 2 * 4096}, {.name = "last", .elems = 8 * 4096}};
  options.digest = false;
  TinyTrainer trainer(options);
  trainer.start();
  for (int step = 0; step < 2; ++step) {
    ASSERT_TRUE(trainer.step().result.applied());
    const std::int64_t opened = trainer.gpu().now().count();
    trainer.engine().wait(trainer.id(0), trainer.reader());
    trainer.gpu().synchronize(trainer.reader());
    const std::int64_t first = trainer.gpu().now().count() - opened;
    EXPECT_GE(first, 2 * (kMeasureNs + kApplyNs));
    EXPECT_LE(first, 2 * (kMeasureNs + kApplyNs) + kMeasureNs);
    trainer.engine().wait(trainer.id(1), trainer.reader());
    trainer.gpu().synchronize(trainer.reader());
    EXPECT_EQ(trainer.gpu().now().count() - opened, 10 * (kMeasureNs + kApplyNs));
  }
}

TEST_P(RuleGroups, TheDescriptionNamesEachGroupsRule) {
  ManualTrainer trainer(config(), GetParam().device());
  for (const NamedRule& rule : every_rule()) trainer.engine->add_group(rule.group.rule);
  trainer.engine->add_group(Lion{.lr = 0.00025}, random_with_average());
  const std::string text = trainer.engine->describe();
  for (const char* name : {"AdamW", "Adam", "Sgd", "Lion", "Adagrad", "Lamb", "decoupled",
                           "in the gradient", "0.00025", "stochastic", "seed 7", "0.9"}) {
    EXPECT_NE(text.find(name), std::string::npos) << name << " in\n" << text;
  }
}

}  // namespace
}  // namespace outboard::testing
