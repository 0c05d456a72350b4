// SPDX-License-Identifier: Apache-2.0
/// Nothing goes wrong in silence: what the log sink hears, once each, with a cause.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "engine/flavours.hpp"
#include "support/log_lines.hpp"
#include "support/manual_trainer.hpp"

namespace outboard::testing {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

class Reports : public ::testing::TestWithParam<Flavour> {
 protected:
  void make() { make(log_.sink()); }
  void make(LogSink sink) {
    Config config;
    config.loss_scaling.initial_scale = 1024.0;
    config.log = std::move(sink);
    trainer_.emplace(GetParam().apply(config), GetParam().device());
    group_ = engine().add_group({.lr = 100.0});
  }
  ManualTrainer& t() { return trainer_.value(); }
  Engine& engine() { return *t().engine; }
  LogLines log_;
  GroupId group_;
  std::optional<ManualTrainer> trainer_;
};
INSTANTIATE_TEST_SUITE_P(Ways, Reports, ::testing::ValuesIn(all_flavours()),
                         [](const auto& test) { return flavour_name(test.param); });

TEST_P(Reports, ARowOfSkippedStepsOnce) {
  make();
  const ParameterId w = t().add("layer.w", {1.0F, 1.0F, 1.0F}, group_);
  engine().commit();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(t().step({{w, {1.0F, 1.0F, kInf}}}).skipped());
  EXPECT_EQ(log_.warnings({"skipped", "layer.w", "Inf", "element 2", "512"}), 1u) << log_.all();
  EXPECT_EQ(log_.warnings({"skipped"}), 1u) << log_.all();
  EXPECT_TRUE(t().step({{w, {0.0F, 0.0F, 0.0F}}}).applied());
  EXPECT_TRUE(t().step({{w, {1.0F, kInf, 1.0F}}}).skipped());
  EXPECT_EQ(log_.warnings({"skipped", "element 1"}), 1u) << log_.all();
}

TEST_P(Reports, WeightsTooLargeForSixteenBitsOnce) {
  make();
  const ParameterId w = t().add("layer.w", {65504.0F}, group_);
  const ParameterId other = t().add("other", {1.0F}, group_);
  engine().commit();
  for (int i = 0; i < 4; ++i) t().step({{w, {-1024.0F}}, {other, {0.0F}}});
  EXPECT_EQ(log_.warnings({"layer.w", "Inf", "learning rate"}), 1u) << log_.all();
  EXPECT_EQ(log_.warnings({"other"}), 0u) << log_.all();
}

TEST_P(Reports, ABounceRingOnce) {
  make();
  t().add("large", std::vector<float>(20000, 1.0F), group_);
  engine().commit();
  const bool bounces = GetParam().pinned_slots.has_value();
  EXPECT_EQ(log_.warnings({"pinned", "bounce", "Config::pinned_slots"}), bounces ? 1u : 0u)
      << log_.all();
}

TEST_P(Reports, TheChoicesOfACommit) {
  make();
  t().add("large", std::vector<float>(20000, 1.0F), group_);
  engine().commit();
  const std::string text = engine().describe();
  for (const char* word : {"threads:", "simd:", "AdamW", "placement:"}) {
    EXPECT_NE(text.find(word), std::string::npos) << word << " in\n" << text;
    EXPECT_NE(log_.all().find(word), std::string::npos) << word << " in\n" << log_.all();
  }
}

TEST_P(Reports, OneLineAtATime) {
  make();
  const ParameterId w = t().add("large", std::vector<float>(20000, 1.0F), group_);
  engine().commit();
  EXPECT_TRUE(t().step({{w, std::vector<float>(20000, kInf)}}).skipped());
  EXPECT_EQ(log_.broken_lines(), 0u) << log_.all();
  EXPECT_EQ(log_.warnings({"skipped"}), 1u) << log_.all();
}

/// A sink is called without the engine's lock, and sees the engine as step() leaves it.
TEST_P(Reports, ASinkMayAskTheEngine) {
  std::vector<double> scales;
  std::uint64_t skipped = 0;
  Engine* asked = nullptr;
  make([&](LogLevel level, std::string_view) {
    if (level != LogLevel::warning || asked == nullptr) return;
    scales.push_back(asked->loss_scale());
    skipped = asked->stats().steps_skipped;
  });
  const ParameterId w = t().add("w", {1.0F}, group_);
  engine().commit();
  asked = &engine();
  EXPECT_TRUE(t().step({{w, {kInf}}}).skipped());
  EXPECT_EQ(scales, std::vector<double>{512.0});
  EXPECT_EQ(skipped, 1u);
}

TEST_P(Reports, ASinkThatThrowsLosesNothing) {
  std::uint64_t calls = 0;
  make([&](LogLevel, std::string_view) {
    ++calls;
    throw std::runtime_error("the disk is full");
  });
  const ParameterId w = t().add("w", {1.0F, 1.0F}, group_);
  EXPECT_NO_THROW(engine().commit());
  EXPECT_GT(calls, 1u);
  const std::uint64_t by_commit = calls;
  const StepResult result = t().step({{w, {1.0F, kInf}}});
  EXPECT_EQ(calls, by_commit + 1);
  EXPECT_TRUE(result.skipped());
  ASSERT_TRUE(result.non_finite.has_value());
  EXPECT_EQ(result.non_finite->element, 1u);
  EXPECT_EQ(result.next_loss_scale, 512.0);
  EXPECT_TRUE(t().step({{w, {1.0F, 1.0F}}}).applied());
  EXPECT_EQ(engine().step_count(w), 1u);
}

TEST_P(Reports, NothingWhenNothingIsWrong) {
  make();
  const ParameterId w = t().add("w", {1.0F}, group_);
  engine().commit();
  for (int i = 0; i < 3; ++i) t().step({{w, {1.0F}}});
  trainer_.reset();
  EXPECT_EQ(log_.warnings({}), 0u) << log_.all();
}

// --- times, on the virtual clock -----------------------------------------------------------------

TEST(StepTimes, OfUpdatesDoNotHoldTheLoadingOfTheState) {
  sim::Options device = virtual_device();
  device.rates.host_elems_per_s = {1e6};
  Config config;
  config.host.synthetic_topology = "numa:1 core:1 pu:1";
  ManualTrainer trainer(config, device);
  const GroupId group = trainer.engine->add_group({});
  const ParameterId w = trainer.add("w", std::vector<float>(10000, 1.0F), group);
  trainer.engine->commit();
  EXPECT_EQ(trainer.engine->stats().update_busy_us, 0.0);
  trainer.step({{w, std::vector<float>(10000, 1.0F)}});
  trainer.engine->synchronize();
  EXPECT_DOUBLE_EQ(trainer.engine->stats().update_busy_us, 10000.0);
}

/// Where the host adds up the gradients step() waits for the sums and their norm.
TEST(StepTimes, HoldTheWaitForSums) {
  constexpr std::size_t elems = 4 * 4096;
  sim::Options device = virtual_device();
  device.rates.link_down_bytes_per_s = 1e6;
  Config config;
  config.accumulate = Accumulate::host;
  config.bucket_bytes = 8192;
  ManualTrainer trainer(config, device);
  const GroupId group = trainer.engine->add_group({});
  const ParameterId w = trainer.add("w", std::vector<float>(elems, 1.0F), group);
  trainer.engine->commit();
  trainer.wait_all();
  trainer.give(w, std::vector<float>(elems, 1.0F));
  const sim::Duration start = trainer.gpu.now();
  EXPECT_TRUE(trainer.engine->step().applied());
  const std::chrono::duration<double, std::micro> blocked = trainer.gpu.now() - start;
  EXPECT_GT(blocked.count(), 0.0) << "nothing was tried";
  EXPECT_NEAR(trainer.engine->stats().gate_wait_us, blocked.count(), 1e-3);
}

/// Four buckets leave one after the other through a ring of one buffer.
TEST(StepTimes, HoldTheWaitForABufferThatIsStillToBeTaken) {
  constexpr std::size_t elems = 4 * 4096;
  sim::Options device = virtual_device();
  device.rates.link_down_bytes_per_s = 1e6;
  Config config;
  config.bucket_bytes = 8192;
  config.pinned_slots = 1;
  ManualTrainer trainer(config, device);
  const GroupId group = trainer.engine->add_group({});
  const ParameterId w = trainer.add("w", std::vector<float>(elems, 1.0F), group);
  trainer.engine->commit();
  trainer.wait_all();
  trainer.give(w, std::vector<float>(elems, 1.0F));
  const double before = trainer.engine->stats().refresh_wait_us;
  const sim::Duration start = trainer.gpu.now();
  trainer.engine->wait_gradient_taken(w, trainer.stream);
  const std::chrono::duration<double, std::micro> blocked = trainer.gpu.now() - start;
  EXPECT_GT(blocked.count(), 0.0) << "nothing was tried";
  EXPECT_NEAR(trainer.engine->stats().refresh_wait_us - before, blocked.count(), 1e-3);
}

}  // namespace
}  // namespace outboard::testing
