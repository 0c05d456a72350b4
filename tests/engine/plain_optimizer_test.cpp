// SPDX-License-Identifier: Apache-2.0
/// Fifty steps beside the plain optimizer, with clipping, accumulation, a moving loss scale,
/// overflows, groups and missing gradients.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "engine/flavours.hpp"
#include "support/plain_adamw.hpp"
#include "support/tiny_trainer.hpp"

namespace outboard::testing {
namespace {

class PlainOptimizer : public ::testing::TestWithParam<Flavour> {};
INSTANTIATE_TEST_SUITE_P(Ways, PlainOptimizer, ::testing::ValuesIn(all_flavours()),
                         [](const auto& test) { return flavour_name(test.param); });

/// Gradients that do not look at the weights: the plain optimizer can be given the same.
float noise_gradient(const GradientPoint& at) {
  return mixed_unit(at.step, at.parameter, at.element);
}

TinyOptions trajectory_options(const Flavour& flavour) {
  TinyOptions options;
  options.device = flavour.device();
  Config config;
  config.max_grad_norm = 20.0;
  config.accumulation = 2;
  config.loss_scaling.initial_scale = 1024.0;
  config.loss_scaling.growth_interval = 7;
  options.config = flavour.apply(config);
  options.groups = {{.lr = 1e-2, .weight_decay = 0.1}, {.lr = 3e-3, .beta1 = 0.8, .beta2 = 0.95}};
  options.parameters = {{.name = "a", .elems = 5000},
                        {.name = "b", .elems = 0},
                        {.name = "c", .elems = 17, .group = 1},
                        {.name = "d", .elems = 1000}};
  options.injected = {{.step = 3, .parameter = 3, .element = 999},
                      {.step = 20, .parameter = 0, .element = 0, .bits = 0x7E01}};
  options.has_gradient = [](std::uint64_t step, std::uint32_t i) {
    return i != 2 || step % 3 != 1;
  };
  return options;
}

/// What the tiny trainer's backward leaves, in double.
PlainAdamW::Gradients plain_gradients(
    const TinyOptions& options, std::uint64_t step, double scale,
    const std::function<float(std::uint32_t, std::size_t)>& weight) {
  PlainAdamW::Gradients out;
  for (std::uint32_t i = 0; i < options.parameters.size(); ++i) {
    out.emplace_back();
    if (!options.has_gradient(step, i)) continue;
    out.back().emplace();
    for (std::size_t e = 0; e < options.parameters[i].elems; ++e) {
      const float g = options.gradient({step, i, e, weight(i, e)}) * static_cast<float>(scale);
      out.back()->push_back(static_cast<double>(half_to_float(half_from_float(g))));
    }
    for (const InjectedHalf& bad : options.injected) {
      if (bad.step != step || bad.parameter != i) continue;
      (*out.back())[bad.element] = static_cast<double>(float_of_bits(bad.bits, DType::f16));
    }
  }
  return out;
}

void follow_the_plain_optimizer(const TinyOptions& options, double tolerance) {
  TinyTrainer trainer(options);
  trainer.start();
  PlainAdamW plain(options.groups, {.max_grad_norm = options.config.max_grad_norm,
                                    .accumulation = options.config.accumulation,
                                    .loss_scaling = options.config.loss_scaling});
  for (std::uint32_t i = 0; i < options.parameters.size(); ++i) {
    const std::vector<float> initial = trainer.initial(i);
    plain.add({initial.begin(), initial.end()}, options.parameters[i].group);
  }
  for (std::uint64_t step = 0; step < 50; ++step) {
    SCOPED_TRACE(step);
    const auto weight = [&](std::uint32_t i, std::size_t e) {
      return half_to_float(half_from_float(static_cast<float>(plain.parameter(i).p[e])));
    };
    const auto gradients = plain_gradients(options, step, plain.loss_scale(), weight);
    const StepResult got = trainer.step().result;
    const PlainAdamW::Result want = plain.step(gradients);
    ASSERT_EQ(got.skipped(), want.skipped);
    ASSERT_EQ(got.loss_scale, want.loss_scale);
    ASSERT_EQ(got.next_loss_scale, plain.loss_scale());
    if (want.skipped) continue;
    EXPECT_NEAR(got.grad_norm, want.grad_norm, want.grad_norm * tolerance);
    EXPECT_NEAR(got.clip, want.clip, tolerance);
  }
  for (std::uint32_t i = 0; i < options.parameters.size(); ++i) {
    const TinyTrainer::State state = trainer.state(i);
    const PlainAdamW::Parameter& want = plain.parameter(i);
    EXPECT_EQ(state.t, options.parameters[i].elems == 0 ? 0 : want.t) << i;
    for (std::size_t e = 0; e < want.p.size(); ++e) {
      ASSERT_NEAR(state.p[e], want.p[e], tolerance) << i << ' ' << e;
      ASSERT_NEAR(state.m[e], want.m[e], tolerance) << i << ' ' << e;
      ASSERT_NEAR(state.v[e], want.v[e], tolerance) << i << ' ' << e;
    }
  }
}

TEST_P(PlainOptimizer, IsFollowed) {
  TinyOptions options = trajectory_options(GetParam());
  options.gradient = noise_gradient;
  follow_the_plain_optimizer(options, 3e-6);
}

TEST_P(PlainOptimizer, IsFollowedThroughTheWeights) {
  // A master near a border of FP16 may round the other way, which moves a gradient by 2^-11.
  follow_the_plain_optimizer(trajectory_options(GetParam()), 2e-3);
}

}  // namespace
}  // namespace outboard::testing
