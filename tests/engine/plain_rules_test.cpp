// SPDX-License-Identifier: Apache-2.0
/// Forty steps of every rule beside its plain form in double, in every dtype, on the host and on
/// the device.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "engine/every_rule.hpp"
#include "engine/flavours.hpp"
#include "support/plain_rules.hpp"
#include "support/tiny_trainer.hpp"

namespace outboard::testing {
namespace {

class PlainRule : public ::testing::TestWithParam<NamedRule> {};
INSTANTIATE_TEST_SUITE_P(Rules, PlainRule, ::testing::ValuesIn(every_rule()),
                         [](const auto& test) { return test.param.name; });

/// Multiples of 1/128, exact in every dtype, and none near 0: where a sum of gradients cancels to
/// almost nothing, Lion's sign is that of a rounding error.
float noise_gradient(const GradientPoint& at) {
  const float noise = mixed_unit(at.step, at.parameter, at.element);
  return (at.element % 2 == 0 ? 1.0F : -1.0F) + 0.5F * noise;
}

TinyOptions model(const TinyRule& rule, DType dtype, Placement placement) {
  Flavour flavour;
  flavour.placement = placement;
  TinyOptions options;
  options.device = flavour.device();
  Config config;
  config.loss_scaling = {.dynamic = false, .initial_scale = 4.0};
  options.config = flavour.apply(config);
  options.rules = {rule};
  for (const std::uint64_t elems : {5000U, 0U, 17U, 9000U}) {
    TinyParameter parameter;
    parameter.elems = elems;
    parameter.dtype = dtype;
    options.parameters.push_back(parameter);
  }
  options.gradient = noise_gradient;
  options.has_gradient = [](std::uint64_t step, std::uint32_t i) {
    return i != 2 || step % 3 != 1;
  };
  options.digest = false;
  return options;
}

void expect_near(const std::vector<float>& got, const std::vector<double>& want, const char* what) {
  for (std::size_t e = 0; e < got.size(); ++e) {
    ASSERT_NEAR(got[e], want[e], 4e-6 * (1.0 + std::abs(want[e]))) << what << ' ' << e;
  }
}

void follow(const TinyRule& rule, DType dtype, Placement placement) {
  const TinyOptions options = model(rule, dtype, placement);
  TinyTrainer trainer(options);
  trainer.start();
  std::vector<PlainState> plain;
  for (std::uint32_t i = 0; i < options.parameters.size(); ++i) {
    plain.push_back(plain_state(rule.rule, trainer.initial(i)));
  }
  for (std::uint64_t step = 0; step < 40; ++step) {
    ASSERT_TRUE(trainer.step().result.applied());
    for (std::uint32_t i = 0; i < plain.size(); ++i) {
      if (!options.has_gradient(step, i) || plain[i].p.empty()) continue;
      std::vector<double> gradient;
      for (std::size_t e = 0; e < plain[i].p.size(); ++e) {
        const float value = noise_gradient({step, i, e, 0.0F});
        gradient.push_back(static_cast<double>(rounded_to(value * 4.0F, dtype)) / 4.0);
      }
      plain_update(rule.rule, plain[i], gradient);
    }
  }
  for (std::uint32_t i = 0; i < plain.size(); ++i) {
    SCOPED_TRACE("parameter " + std::to_string(i));
    const TinyTrainer::State state = trainer.state(i);
    EXPECT_EQ(state.t, plain[i].t);
    expect_near(state.p, plain[i].p, "master");
    expect_near(state.m, plain[i].first, "first stream");
    expect_near(state.v, plain[i].second, "second stream");
    for (std::size_t e = 0; e < state.p.size(); ++e) {
      ASSERT_EQ(load_bits(std::as_bytes(std::span(state.weight)), e, dtype),
                bits_of_float(state.p[e], dtype));
    }
  }
}

TEST_P(PlainRule, IsFollowedInEveryDTypeAndPlacement) {
  for (const DType dtype : kEveryDType) {
    for (const Placement placement :
         {Placement::host, Placement::device_resident, Placement::device_streamed}) {
      const bool streamed = placement == Placement::device_streamed;
      if (streamed && std::holds_alternative<Lamb>(GetParam().group.rule)) continue;
      SCOPED_TRACE(std::string(dtype_name(dtype)) + (placement == Placement::host ? ", host"
                                                     : streamed                   ? ", streamed"
                                                                                  : ", resident"));
      follow(GetParam().group, dtype, placement);
    }
  }
}

}  // namespace
}  // namespace outboard::testing
