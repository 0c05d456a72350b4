// SPDX-License-Identifier: Apache-2.0
/// A small network trained for 200 steps with Adam, whose decay is in the gradient, and with AdamW,
/// whose decay is not: the losses are those of the rule in double without offload, and neither rule
/// passes for the other, in numbers or in words.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <ostream>
#include <string>
#include <tuple>
#include <vector>

#include "engine/flavours.hpp"
#include "engine/small_network.hpp"
#include "engine/splits.hpp"
#include "engine/trained_network.hpp"
#include "support/log_lines.hpp"
#include "support/manual_trainer.hpp"
#include "support/plain_rules.hpp"

namespace outboard::testing {
namespace {

constexpr int kSteps = 200;

using Values = Network::Values;

struct TrainedRule {
  std::string name;
  Rule rule;
  DType dtype = DType::f32;
  double tolerance = 1e-5;  ///< of a loss, relative
};
std::ostream& operator<<(std::ostream& out, const TrainedRule& rule) {
  return out << rule.name;
}

/// A decay that a run in the other form would show.
std::vector<TrainedRule> trained_rules() {
  const Adam adam{.lr = 1e-3, .weight_decay = 0.01};
  const AdamW adamw{.lr = 1e-3, .weight_decay = 0.01};
  return {{.name = "adam_f32", .rule = adam},
          {.name = "adamw_f32", .rule = adamw},
          {.name = "adam_f16", .rule = adam, .dtype = DType::f16, .tolerance = 1e-4}};
}

Values rounded(const std::vector<double>& values, DType dtype) {
  Values out;
  for (const double value : values) out.push_back(rounded_to(static_cast<float>(value), dtype));
  return out;
}

std::vector<Values> rounded(const Network::Result& result, DType dtype) {
  std::vector<Values> out;
  for (const std::vector<double>& gradient : result.gradients) {
    out.push_back(rounded(gradient, dtype));
  }
  return out;
}

std::vector<double> plain_losses(const TrainedRule& trained) {
  std::vector<PlainState> states;
  for (const Values& values : Network::initial()) {
    const std::vector<double> exact(values.begin(), values.end());
    states.push_back(plain_state(trained.rule, rounded(exact, trained.dtype)));
  }
  std::vector<double> losses;
  for (int step = 0; step < kSteps; ++step) {
    std::vector<Values> weights;
    for (const PlainState& state : states) weights.push_back(rounded(state.p, trained.dtype));
    const Network::Result result = Network::run(weights);
    losses.push_back(result.loss);
    const std::vector<Values> gradients = rounded(result, trained.dtype);
    for (std::size_t i = 0; i < states.size(); ++i) {
      plain_update(trained.rule, states[i], {gradients[i].begin(), gradients[i].end()});
    }
  }
  return losses;
}

const std::vector<double>& reference(const TrainedRule& trained) {
  static std::map<std::string, std::vector<double>> all;
  std::vector<double>& losses = all[trained.name];
  if (losses.empty()) losses = plain_losses(trained);
  return losses;
}

Config config_of(const Flavour& flavour) {
  Config config;
  config.loss_scaling = {.dynamic = false, .initial_scale = 1.0};
  return flavour.apply(config);
}

std::vector<double> engine_losses(const Flavour& flavour, const TrainedRule& trained) {
  ManualTrainer trainer(config_of(flavour), flavour.device());
  trainer.dtype = trained.dtype;
  const GroupId group = trainer.engine->add_group(trained.rule);
  return train_network(trainer, group, kSteps, [&](const Network::Result& result) {
    return rounded(result, trained.dtype);
  });
}

std::vector<Flavour> trained_flavours() {
  std::vector<Flavour> out = all_flavours();
  std::erase_if(out, [](const Flavour& flavour) {
    return flavour.name == "virtual_no_flags" || flavour.name == "threads_bounce";
  });
  out.push_back({.name = "virtual_fraction", .placement = Placement::fraction});
  out.push_back({.name = "virtual_open", .schedule = Schedule::open});
  return out;
}

using RuleWay = std::tuple<Flavour, TrainedRule>;
class OffloadRules : public ::testing::TestWithParam<RuleWay> {};
INSTANTIATE_TEST_SUITE_P(Ways, OffloadRules,
                         ::testing::Combine(::testing::ValuesIn(trained_flavours()),
                                            ::testing::ValuesIn(trained_rules())),
                         [](const auto& test) {
                           return std::get<0>(test.param).name + "_" + std::get<1>(test.param).name;
                         });

/// About half of the network's state, in whole buckets.
double half_of_it(const Flavour& flavour, DType dtype) {
  TinyOptions options;
  options.config = flavour.apply({});
  for (const Values& values : Network::initial()) {
    TinyParameter& parameter = options.parameters.emplace_back();
    parameter.elems = values.size();
    parameter.dtype = dtype;
  }
  return nearest_split(options, 0.5).fraction;
}

TEST_P(OffloadRules, HaveTheLossesOfTheRuleWithoutOffload) {
  auto [flavour, trained] = GetParam();
  if (flavour.placement == Placement::fraction) {
    flavour.device_fraction = half_of_it(flavour, trained.dtype);
  }
  const std::vector<double>& want = reference(trained);
  const std::vector<double> got = engine_losses(flavour, trained);
  for (std::size_t step = 0; step < kSteps; ++step) {
    ASSERT_NEAR(got[step], want[step], want[step] * trained.tolerance) << "step " << step;
  }
  EXPECT_LT(got.back(), 0.7 * got.front()) << "it has not learnt";
}

TEST(OffloadRule, DecaysOfAdamAndAdamWAreNotAlike) {
  const std::vector<TrainedRule> rules = trained_rules();
  const double adam = reference(rules[0]).back();
  const double adamw = reference(rules[1]).back();
  EXPECT_GT(std::abs(adam - adamw), 50 * rules[0].tolerance * adam);
}

/// What commit() logs of a group.
std::string logged(const Rule& rule) {
  LogLines log;
  Config config;
  config.log = log.sink();
  ManualTrainer trainer(config);
  trainer.add("w", {1.0F}, trainer.engine->add_group(rule));
  trainer.engine->commit();
  for (const std::string& line : log.texts()) {
    if (line.starts_with("optimizer, group 0: ")) return line.substr(20);
  }
  return "";
}

TEST(OffloadRule, IsNamedWithItsDecayBetasAndEpsWhenItStarts) {
  const std::string adam =
      logged(Adam{.lr = 1e-3, .beta1 = 0.85, .beta2 = 0.985, .eps = 1e-7, .weight_decay = 0.01});
  EXPECT_TRUE(adam.starts_with("Adam, ")) << adam;
  EXPECT_EQ(adam.find("AdamW"), std::string::npos) << adam;
  EXPECT_NE(adam.find("weight decay in the gradient 0.01"), std::string::npos) << adam;
  const std::string adamw =
      logged(AdamW{.lr = 1e-3, .beta1 = 0.85, .beta2 = 0.985, .eps = 1e-7, .weight_decay = 0.01});
  EXPECT_TRUE(adamw.starts_with("AdamW, ")) << adamw;
  EXPECT_NE(adamw.find("decoupled weight decay 0.01"), std::string::npos) << adamw;
  for (const std::string& line : {adam, adamw}) {
    for (const char* value : {"betas 0.85 and 0.985", "eps 1e-07"}) {
      EXPECT_NE(line.find(value), std::string::npos) << value << " in " << line;
    }
  }
}

}  // namespace
}  // namespace outboard::testing
