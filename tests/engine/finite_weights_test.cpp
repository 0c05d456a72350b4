// SPDX-License-Identifier: Apache-2.0
/// Nothing non-finite becomes a master weight: it is refused by name, and the engine works on.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "engine/flavours.hpp"
#include "support/expect_error.hpp"
#include "support/manual_trainer.hpp"

namespace outboard::testing {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
/// Split over two buckets, the second shared with the other parameter.
constexpr std::size_t kElems = 5000;
constexpr std::size_t kBadElement = 4711;

struct BadValue {
  float value = 0.0F;
  const char* word = "";
};
constexpr BadValue kBad[] = {{kNan, "NaN"}, {kInf, "Inf"}, {-kInf, "Inf"}};

class FiniteWeights : public ::testing::TestWithParam<Flavour> {
 protected:
  void make(std::span<const float> master = {}) {
    Config config;
    config.loss_scaling = {.initial_scale = 1.0};
    trainer_.emplace(GetParam().apply(config), GetParam().device());
    const GroupId group = engine().add_group({.lr = 0.01});
    other_ = t().add("other", {1.0F, 2.0F}, group);
    layer_ = t().add("layer.w", std::vector<float>(kElems, 1.0F), group, master);
  }
  ManualTrainer& t() { return trainer_.value(); }
  Engine& engine() { return *t().engine; }
  void write_weight(float value) {
    std::vector<float> values(kElems, 1.0F);
    values[kBadElement] = value;
    upload<std::uint16_t>(t().gpu, t().weight(layer_), to_halves(values), t().stream);
  }
  /// Commits with a fault, without it, and steps.
  template <class Repair>
  void expect_commit_once_repaired(const BadValue& bad, const char* what, Repair&& repair) {
    const sim::Counters before = t().gpu.counters();
    const auto commit = [&] { engine().commit(); };
    for (int i = 0; i < 2; ++i) {
      expect_error(ErrorCode::invalid_argument,
                   {"commit()", what, "'layer.w'", bad.word, "element 4711"}, commit);
      const sim::Counters after = t().gpu.counters();
      EXPECT_EQ(after.live_allocations, before.live_allocations);
      EXPECT_EQ(after.live_events, before.live_events);
      EXPECT_EQ(after.live_streams, before.live_streams);
      EXPECT_EQ(after.live_registrations, before.live_registrations);
    }
    repair();
    engine().commit();
    EXPECT_TRUE(t().step({{layer_, std::vector<float>(kElems, 1.0F)}}).applied());
    const auto state = t().state(layer_);
    EXPECT_NEAR(state.p[kBadElement], 0.99, 1e-6);
    EXPECT_EQ(state.p[0], state.p[kBadElement]);
  }

  std::optional<ManualTrainer> trainer_;
  ParameterId other_, layer_;
};
INSTANTIATE_TEST_SUITE_P(Ways, FiniteWeights, ::testing::ValuesIn(all_flavours()),
                         [](const auto& test) { return flavour_name(test.param); });

TEST_P(FiniteWeights, CommitRefusesAMaster) {
  for (const BadValue& bad : kBad) {
    std::vector<float> master(kElems, 1.0F);
    master[kBadElement] = bad.value;
    make(master);
    expect_commit_once_repaired(bad, "`master`", [&] { master[kBadElement] = 1.0F; });
  }
}

TEST_P(FiniteWeights, CommitRefusesADeviceWeight) {
  for (const BadValue& bad : kBad) {
    make();
    write_weight(bad.value);
    expect_commit_once_repaired(bad, "weight", [&] { write_weight(1.0F); });
  }
}

/// With masters given the weight is written, so what it holds before does not matter.
TEST_P(FiniteWeights, CommitTakesAnyDeviceWeightBesideAMaster) {
  const std::vector<float> master(kElems, 1.0F);
  make(master);
  write_weight(kNan);
  engine().commit();
  EXPECT_EQ(t().weight_bits(layer_), to_halves(master));
}

TEST_P(FiniteWeights, ChangedWeightsAreRefusedAndNothingChanges) {
  for (const BadValue& bad : kBad) {
    make();
    engine().commit();
    const std::vector<float> ones(kElems, 1.0F);
    t().step({{other_, {1.0F, 1.0F}}, {layer_, ones}});
    t().wait_all();
    const std::uint64_t digest = engine().state_digest();
    const auto state = t().state(layer_);
    t().give(other_, {2.0F, 2.0F});  // a gradient of another parameter may be pending
    write_weight(bad.value);
    expect_error(ErrorCode::invalid_argument,
                 {"weights_changed()", "weight", "'layer.w'", bad.word, "element 4711"},
                 [&] { engine().weights_changed(layer_, t().stream); });
    EXPECT_EQ(engine().state_digest(), digest);
    EXPECT_EQ(engine().step_count(layer_), 1u);
    // The other parameter's gradient is whole, and the refused weight is not taken for one.
    const StepResult result = engine().step();
    EXPECT_TRUE(result.applied());
    EXPECT_DOUBLE_EQ(result.grad_norm, std::sqrt(8.0));
    EXPECT_TRUE(t().step({{layer_, ones}}).applied());
    const auto after = t().state(layer_);  // refreshed from the master, which stayed
    EXPECT_EQ(after.t, 2u);
    EXPECT_EQ(after.p[kBadElement], after.p[0]);
    EXPECT_LT(after.p[0], state.p[0]);
    EXPECT_EQ(after.weight, to_halves(after.p));
  }
}

TEST_P(FiniteWeights, ChangedWeightsAreTakenOnceRepaired) {
  make();
  engine().commit();
  write_weight(kNan);
  expect_error(ErrorCode::invalid_argument, {"weights_changed()", "NaN"},
               [&] { engine().weights_changed(layer_, t().stream); });
  write_weight(0.5F);
  engine().weights_changed(layer_, t().stream);
  EXPECT_EQ(t().state(layer_).p[kBadElement], 0.5F);
  EXPECT_EQ(t().state(layer_).p[0], 1.0F);
}

/// The norm of a gradient that was dropped may be queued still, and says NaN.
TEST(DroppedGradient, IsNotTakenForTheWeightThatChanges) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    sim::Options device = virtual_device(seed);
    device.max_random_delay = sim::Duration(20'000);
    Config config;
    config.loss_scaling = {.initial_scale = 1.0};
    ManualTrainer trainer(config, device);
    const GroupId group = trainer.engine->add_group({.lr = 0.01});
    const ParameterId layer = trainer.add("layer.w", std::vector<float>(kElems, 1.0F), group);
    trainer.engine->commit();
    trainer.gpu.synchronize();
    const NativeStream writer = trainer.gpu.create_stream("writer");
    trainer.give(layer, std::vector<float>(kElems, kNan));
    trainer.engine->discard();
    EXPECT_NO_THROW(trainer.engine->weights_changed(layer, writer));
    trainer.gpu.synchronize();
    trainer.gpu.destroy_stream(writer);
  }
}

}  // namespace
}  // namespace outboard::testing
