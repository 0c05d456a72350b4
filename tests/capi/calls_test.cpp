// SPDX-License-Identifier: Apache-2.0
// The C interface does what the C++ interface does: same values, same bits.

#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "capi/raw_enum.hpp"
#include "outboard/outboard.h"
#include "outboard/outboard.hpp"
#include "outboard/version.hpp"

namespace outboard::testing {
namespace {

constexpr std::size_t kElems = 3000;

std::vector<float> pattern(float scale) {
  std::vector<float> out(kElems);
  for (std::size_t i = 0; i < kElems; ++i) {
    out[i] = scale * (static_cast<float>(i % 257) - 128.0F) / 128.0F;
  }
  return out;
}

/// Five steps through the C interface. @return the digest.
std::uint64_t run_c(const outboard_group& settings, std::vector<float>& weights) {
  outboard_device* device = nullptr;
  outboard_engine* engine = nullptr;
  outboard_config config;
  outboard_config_init(&config);
  config.max_grad_norm = 1.0;
  EXPECT_EQ(outboard_device_open("host", &device), OUTBOARD_OK);
  EXPECT_EQ(outboard_engine_create(device, &config, &engine), OUTBOARD_OK);
  std::uint32_t group = 7, id = 7;
  EXPECT_EQ(outboard_add_group(engine, &settings, &group), OUTBOARD_OK) << outboard_last_error();
  outboard_parameter parameter;
  outboard_parameter_init(&parameter);
  parameter.name = "w";
  parameter.dtype = OUTBOARD_F32;
  parameter.elems = kElems;
  parameter.data = weights.data();
  parameter.group = group;
  EXPECT_EQ(outboard_add_parameter(engine, &parameter, &id), OUTBOARD_OK);
  EXPECT_EQ(outboard_commit(engine), OUTBOARD_OK) << outboard_last_error();
  double scale = 0.0;
  EXPECT_EQ(outboard_loss_scale(engine, &scale), OUTBOARD_OK);
  const std::vector<float> gradient = pattern(static_cast<float>(scale));
  for (int step = 0; step < 5; ++step) {
    EXPECT_EQ(outboard_wait(engine, id, 0), OUTBOARD_OK);
    EXPECT_EQ(outboard_gradient_ready(engine, id, gradient.data(), 0), OUTBOARD_OK);
    EXPECT_EQ(outboard_step(engine, nullptr), OUTBOARD_OK);
  }
  EXPECT_EQ(outboard_synchronize(engine), OUTBOARD_OK);
  std::uint64_t digest = 0;
  EXPECT_EQ(outboard_state_digest(engine, &digest), OUTBOARD_OK);
  EXPECT_EQ(outboard_engine_destroy(engine), OUTBOARD_OK);
  EXPECT_EQ(outboard_device_close(device), OUTBOARD_OK);
  return digest;
}

std::uint64_t run_cpp(const Rule& rule, const GroupOptions& options, std::vector<float>& weights) {
  Engine engine(Device::host(), {.max_grad_norm = 1.0});
  const GroupId group = engine.add_group(rule, options);
  const ParameterId id = engine.add_parameter(
      {.name = "w", .dtype = DType::f32, .elems = kElems, .data = weights.data(), .group = group});
  engine.commit();
  const std::vector<float> gradient = pattern(static_cast<float>(engine.loss_scale()));
  for (int step = 0; step < 5; ++step) {
    engine.wait(id, {0});
    engine.gradient_ready(id, gradient.data(), {0});
    (void)engine.step();
  }
  engine.synchronize();
  return engine.state_digest();
}

TEST(CCalls, EveryRulesDefaultsAreThoseOfCpp) {
  const std::vector<Rule> rules = {AdamW{}, Adam{}, Sgd{}, Lion{}, Adagrad{}, Lamb{}};
  std::set<std::uint64_t> digests;
  for (std::size_t i = 0; i < rules.size(); ++i) {
    outboard_group settings;
    outboard_group_init(&settings, static_cast<outboard_rule>(i));
    std::vector<float> c = pattern(0.5F), cpp = pattern(0.5F);
    const std::uint64_t digest = run_c(settings, c);
    EXPECT_EQ(digest, run_cpp(rules[i], {}, cpp)) << rule_name(rules[i]);
    EXPECT_EQ(c, cpp) << rule_name(rules[i]);
    digests.insert(digest);
  }
  EXPECT_EQ(digests.size(), 5U) << "AdamW and Adam are one without weight decay; no others are";
}

TEST(CCalls, EveryFieldOfAGroupArrives) {
  outboard_group settings;
  const auto same = [&](const Rule& rule, const GroupOptions& options = {}) {
    std::vector<float> c = pattern(0.5F), cpp = pattern(0.5F);
    EXPECT_EQ(run_c(settings, c), run_cpp(rule, options, cpp)) << rule_name(rule);
  };
  outboard_group_init(&settings, OUTBOARD_ADAMW);
  settings.lr = 0.01, settings.beta1 = 0.8, settings.beta2 = 0.95, settings.eps = 1e-6;
  settings.weight_decay = 0.1, settings.ema_decay = 0.9;
  same(AdamW{.lr = 0.01, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.1},
       {.ema_decay = 0.9});
  outboard_group_init(&settings, OUTBOARD_SGD);
  settings.lr = 0.01, settings.momentum = 0.9, settings.weight_decay = 0.2, settings.nesterov = 1;
  same(Sgd{.lr = 0.01, .momentum = 0.9, .nesterov = true, .weight_decay = 0.2});
  settings.nesterov = 0, settings.dampening = 0.5;
  same(Sgd{.lr = 0.01, .momentum = 0.9, .dampening = 0.5, .weight_decay = 0.2});
  outboard_group_init(&settings, OUTBOARD_ADAGRAD);
  settings.lr_decay = 0.1, settings.initial_accumulator = 0.5;
  same(Adagrad{.lr_decay = 0.1, .initial_accumulator = 0.5});
}

TEST(CCalls, StatusesAreNamed) {
  std::set<std::string> names;
  for (int i = OUTBOARD_OK; i <= OUTBOARD_INTERNAL; ++i) {
    names.insert(outboard_status_name(static_cast<outboard_status>(i)));
  }
  EXPECT_EQ(names.size(), static_cast<std::size_t>(OUTBOARD_INTERNAL) + 1);
  EXPECT_STREQ(outboard_status_name(raw<outboard_status>(99)), "unknown");
  EXPECT_STREQ(outboard_version(), kVersion);
}

}  // namespace
}  // namespace outboard::testing
