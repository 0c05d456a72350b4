// SPDX-License-Identifier: Apache-2.0
/// BF16 and FP32 parameters, alone and beside others: what never enters the state, what crosses the
/// link, and what a weight is after a refresh.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "engine/every_rule.hpp"
#include "engine/flavours.hpp"
#include "support/expect_error.hpp"
#include "support/manual_trainer.hpp"

namespace outboard::testing {
namespace {

class DTypes : public ::testing::TestWithParam<Flavour> {
 protected:
  /// No loss scaling: gradients are what they are.
  [[nodiscard]] Config config() const {
    Config config;
    config.loss_scaling = {.dynamic = false, .initial_scale = 1.0};
    return GetParam().apply(config);
  }
};
INSTANTIATE_TEST_SUITE_P(Ways, DTypes, ::testing::ValuesIn(all_flavours()),
                         [](const auto& test) { return flavour_name(test.param); });
/// Where every bucket has a slot that is pinned.
using StagedDTypes = DTypes;
INSTANTIATE_TEST_SUITE_P(Ways, StagedDTypes,
                         ::testing::ValuesIn(flavours_where([](const Flavour& flavour) {
                           return flavour.placement == Placement::host && !flavour.pinned_slots;
                         })),
                         [](const auto& test) { return flavour_name(test.param); });

/// Every rule's state stays as it is, to the bit, when one element of a thousand is not finite.
TEST_P(DTypes, ANonFiniteElementSkipsTheStepAndIsNamed) {
  constexpr float kInfinite = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  struct Case {
    std::size_t element;
    float value;
    bool is_nan;
  };
  const Case cases[] = {{999, kInfinite, false}, {0, kNan, true}, {512, -kInfinite, false}};
  for (const DType dtype : kEveryDType) {
    for (const NamedRule& rule : every_rule(GetParam().placement)) {
      SCOPED_TRACE(std::string(dtype_name(dtype)) + ", " + rule.name);
      ManualTrainer trainer(config(), GetParam().device());
      const GroupId group = trainer.engine->add_group(rule.group.rule, random_with_average());
      const std::vector<float> ones(1000, 1.0F);
      const ParameterId a = trainer.add("a", ones, group, {}, dtype);
      const ParameterId b = trainer.add("b", {2.0F}, group, {}, dtype);
      trainer.engine->commit();
      const std::vector<float> gradient(1000, 0.5F);
      ASSERT_TRUE(trainer.step({{a, gradient}, {b, {0.5F}}}).applied());
      const auto before = trainer.state(a);
      const auto other_before = trainer.state(b);
      for (const Case& c : cases) {
        std::vector<float> bad = gradient;
        bad[c.element] = c.value;
        const StepResult result = trainer.step({{b, {0.5F}}, {a, bad}});
        ASSERT_TRUE(result.skipped());
        ASSERT_TRUE(result.non_finite.has_value());
        EXPECT_EQ(result.non_finite->name, "a");
        EXPECT_EQ(result.non_finite->element, c.element);
        EXPECT_EQ(result.non_finite->count, 1U);
        EXPECT_EQ(result.non_finite->is_nan, c.is_nan);
        EXPECT_EQ(trainer.state(a), before);
        EXPECT_EQ(trainer.state(b), other_before);
      }
      EXPECT_TRUE(trainer.step({{a, gradient}, {b, {0.5F}}}).applied());
    }
  }
}

/// Squares are summed in double, so 1e15 is an ordinary norm; 1e30 is beyond the largest norm that
/// a step takes, 2^63, and its square would be no float in the state.
TEST_P(DTypes, AGradientWhoseSquareOverflowsSkipsTheStepWithTheNormAsReason) {
  std::vector<std::string> warnings;
  Config logged = config();
  logged.log = [&](LogLevel level, std::string_view line) {
    if (level == LogLevel::warning) warnings.emplace_back(line);
  };
  for (const DType dtype : {DType::bf16, DType::f32}) {
    for (const NamedRule& rule : every_rule(GetParam().placement)) {
      SCOPED_TRACE(std::string(dtype_name(dtype)) + ", " + rule.name);
      ManualTrainer trainer(logged, GetParam().device());
      const GroupId group = trainer.engine->add_group(rule.group.rule);
      const ParameterId a = trainer.add("a", std::vector<float>(1000, 1.0F), group, {}, dtype);
      trainer.engine->commit();
      ASSERT_TRUE(trainer.step({{a, std::vector<float>(1000, 1e15F)}}).applied());
      const auto before = trainer.state(a);
      for (const auto* stream : {&before.p, &before.m, &before.v}) {
        for (const float value : *stream) ASSERT_TRUE(std::isfinite(value));
      }
      warnings.clear();
      const StepResult result = trainer.step({{a, std::vector<float>(1000, 1e30F)}});
      EXPECT_TRUE(result.skipped());
      EXPECT_FALSE(result.non_finite.has_value());
      EXPECT_NEAR(result.grad_norm, 1e30 * std::sqrt(1000.0), 1e29);
      EXPECT_EQ(trainer.state(a), before);
      ASSERT_EQ(warnings.size(), 1U);
      EXPECT_NE(warnings[0].find("norm"), std::string::npos) << warnings[0];
    }
  }
}

/// The largest gradients that a step takes, over and over: what adds them up stays finite.
TEST_P(DTypes, GradientsNearTheLimitKeepEveryStateFinite) {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    for (const NamedRule& rule : every_rule(GetParam().placement)) {
      SCOPED_TRACE(std::string(dtype_name(dtype)) + ", " + rule.name);
      ManualTrainer trainer(config(), GetParam().device());
      const GroupId group = trainer.engine->add_group(rule.group.rule);
      const ParameterId a = trainer.add("a", {1.0F}, group, {}, dtype);
      trainer.engine->commit();
      for (int step = 1; step <= 10; ++step) {
        ASSERT_TRUE(trainer.step({{a, {0x1.FCp62F}}}).applied());
        const auto now = trainer.state(a);
        for (const auto* stream : {&now.p, &now.m, &now.v}) {
          for (const float value : *stream) ASSERT_TRUE(std::isfinite(value)) << "step " << step;
        }
      }
    }
  }
}

TEST_P(DTypes, OneGroupMayHoldAllOfThem) {
  ManualTrainer trainer(config(), GetParam().device());
  const GroupId group = trainer.engine->add_group(AdamW{.lr = 0.1, .weight_decay = 0.1});
  const std::vector<float> values = {1.0F, -2.0F, 0.5F};
  std::vector<ParameterId> ids;
  for (const DType dtype : kEveryDType) {
    ids.push_back(trainer.add(dtype_name(dtype), values, group, {}, dtype));
  }
  trainer.engine->commit();
  for (int i = 0; i < 3; ++i) {
    ManualTrainer::Gradients gradients;
    for (const ParameterId id : ids)
      gradients.emplace_back(id, std::vector<float>{0.5F, 1.0F, -1.0F});
    ASSERT_TRUE(trainer.step(gradients).applied());
  }
  const auto f16 = trainer.state(ids[0]);
  for (std::size_t d = 1; d < 3; ++d) {
    const auto state = trainer.state(ids[d]);
    EXPECT_EQ(state.p, f16.p);
    EXPECT_EQ(state.m, f16.m);
    EXPECT_EQ(state.v, f16.v);
    for (std::size_t e = 0; e < values.size(); ++e) {
      EXPECT_EQ(load_bits(std::as_bytes(std::span(state.weight)), e, kEveryDType[d]),
                bits_of_float(state.p[e], kEveryDType[d]));
    }
  }
}

/// Down and up, to the byte: 2 and 2, or 4 and 4.
TEST_P(DTypes, TheLinkCarriesEachGradientAndWeightOnce) {
  for (const DType dtype : kEveryDType) {
    TinyOptions options;
    options.device = GetParam().device();
    options.config = config();
    for (const std::uint64_t elems : {9000U, 0U, 7U}) {
      TinyParameter parameter;
      parameter.elems = elems;
      parameter.dtype = dtype;
      options.parameters.push_back(parameter);
    }
    TinyTrainer trainer(options);
    trainer.start();
    trainer.run(3);
    trainer.engine().synchronize();
    const StepStats stats = trainer.engine().stats();
    const bool on_host = GetParam().placement == Placement::host;
    const std::uint64_t bytes = on_host ? 3 * 9007 * dtype_bytes(dtype) : 0;
    EXPECT_EQ(stats.gradient_bytes_down, bytes);
    EXPECT_EQ(stats.weight_bytes_up, bytes);
  }
}

TEST_P(StagedDTypes, StagingFollowsTheDType) {
  for (const DType dtype : kEveryDType) {
    ManualTrainer trainer(config(), GetParam().device());
    const GroupId group = trainer.engine->add_group(AdamW{});
    trainer.add("w", std::vector<float>(8192, 1.0F), group, {}, dtype);
    trainer.engine->commit();
    std::size_t staging = 0;
    for (const LedgerEntry& entry : trainer.engine->ledger().entries) {
      if (entry.purpose == "gradient and weight staging") staging += entry.bytes;
    }
    EXPECT_EQ(staging, 8192 * dtype_bytes(dtype));
  }
}

TEST_P(DTypes, AChangedWeightIsReadAgain) {
  for (const DType dtype : kEveryDType) {
    ManualTrainer trainer(config(), GetParam().device());
    const GroupId group = trainer.engine->add_group(AdamW{.lr = 0.1}, {.ema_decay = 0.5});
    const ParameterId w = trainer.add("w", {1.0F, 3.0F}, group, {}, dtype);
    trainer.engine->commit();
    trainer.step({{w, {1.0F, 1.0F}}});
    const auto before = trainer.state(w);
    const auto changed = to_elements(std::vector<float>{-4.5F, 0.25F}, dtype);
    upload<std::byte>(trainer.gpu, trainer.weight(w), changed, trainer.stream);
    trainer.engine->weights_changed(w, trainer.stream);
    const auto after = trainer.state(w);
    EXPECT_EQ(after.p, (std::vector<float>{-4.5F, 0.25F}));
    EXPECT_EQ(after.m, before.m);
    EXPECT_EQ(after.v, before.v);
    EXPECT_EQ(after.ema, before.ema);
    EXPECT_EQ(after.t, 1U);
  }
}

TEST_P(DTypes, MastersCanComeWithTheParameter) {
  const std::vector<float> masters = {0.1F, -0.7F, 1e-3F};
  for (const DType dtype : kEveryDType) {
    ManualTrainer trainer(config(), GetParam().device());
    const GroupId group = trainer.engine->add_group(Lion{});
    const ParameterId w = trainer.add("w", {0.0F, 0.0F, 0.0F}, group, masters, dtype);
    trainer.engine->commit();
    const auto state = trainer.state(w);
    EXPECT_EQ(state.p, masters);
    for (std::size_t e = 0; e < masters.size(); ++e) {
      EXPECT_EQ(load_bits(std::as_bytes(std::span(state.weight)), e, dtype),
                bits_of_float(masters[e], dtype));
    }
  }
}

TEST_P(DTypes, AParameterWithoutGradientsStaysWhatItIs) {
  for (const DType dtype : kEveryDType) {
    for (const NamedRule& rule : every_rule(GetParam().placement)) {
      SCOPED_TRACE(std::string(dtype_name(dtype)) + ", " + rule.name);
      ManualTrainer trainer(config(), GetParam().device());
      const GroupId group = trainer.engine->add_group(rule.group.rule, random_with_average());
      const ParameterId moves = trainer.add("moves", {1.0F, 2.0F}, group, {}, dtype);
      const ParameterId frozen = trainer.add("frozen", {1.0F, 2.0F}, group, {}, dtype);
      const ParameterId empty = trainer.add("empty", {}, group, {}, dtype);
      trainer.engine->commit();
      const auto before = trainer.state(frozen);
      for (int i = 0; i < 3; ++i) {
        ASSERT_TRUE(trainer.step({{moves, {0.5F, 0.5F}}, {empty, {}}}).applied());
      }
      EXPECT_EQ(trainer.state(frozen), before);
      EXPECT_EQ(trainer.state(empty).t, 0U);
      EXPECT_EQ(trainer.state(moves).t, 3U);
      EXPECT_NE(trainer.state(moves).p, before.p);
    }
  }
}

/// check_waits: a forgotten wait() reads NaN of the dtype.
TEST(StaleWeights, AreNanInEveryDType) {
  for (const DType dtype : kEveryDType) {
    Config config;
    config.check_waits = true;
    config.loss_scaling = {.dynamic = false, .initial_scale = 1.0};
    sim::Options device = virtual_device();
    device.rates.host_elems_per_s = {1.0};  // the refresh is far away
    ManualTrainer trainer(config, device);
    const GroupId group = trainer.engine->add_group(AdamW{});
    const ParameterId w = trainer.add("w", {1.0F, 1.0F, 1.0F}, group, {}, dtype);
    trainer.engine->commit();
    trainer.step({{w, {1.0F, 1.0F, 1.0F}}});
    const NativeStream careless = trainer.gpu.create_stream("careless");
    trainer.gpu.launch(careless, sim::Duration(1000), [](sim::KernelView&) {});
    trainer.gpu.synchronize(careless);
    const auto stale =
        download<std::byte>(trainer.gpu, trainer.weight(w), 3 * dtype_bytes(dtype), careless);
    for (std::size_t e = 0; e < 3; ++e) {
      EXPECT_TRUE(std::isnan(float_of_bits(load_bits(stale, e, dtype), dtype))) << e;
    }
    trainer.engine->wait(w, trainer.stream);
    trainer.gpu.synchronize(trainer.stream);
    trainer.gpu.destroy_stream(careless);
  }
}

TEST(Refusals, OfDTypesAndAlignment) {
  ManualTrainer trainer(Config{});
  const GroupId group = trainer.engine->add_group(AdamW{});
  auto* memory = static_cast<std::byte*>(trainer.make(std::vector<float>(16, 1.0F)));
  ParameterSpec spec;
  spec.name = "w";
  spec.elems = 4;
  spec.group = group;
  spec.data = memory;
  spec.dtype = static_cast<DType>(7);
  expect_error(ErrorCode::unsupported, {"'w'", "7", "DType::f32"},
               [&] { trainer.engine->add_parameter(spec); });
  spec.dtype = DType::f32;
  spec.data = memory + 2;
  expect_error(ErrorCode::invalid_argument, {"'w'", "aligned to 4"},
               [&] { trainer.engine->add_parameter(spec); });
  spec.data = memory;
  spec.elems = 9;  // 36 bytes of 32
  expect_error(ErrorCode::invalid_argument, {"'w'", "data"},
               [&] { trainer.engine->add_parameter(spec); });
  spec.elems = 4;
  trainer.engine->add_parameter(spec);
  // The same bytes as another dtype are no second name of the weight.
  spec.name = "same bytes";
  spec.dtype = DType::f16;
  spec.elems = 8;
  expect_error(ErrorCode::invalid_argument, {"'same bytes'", "overlaps 'w'"},
               [&] { trainer.engine->add_parameter(spec); });
}

}  // namespace
}  // namespace outboard::testing
