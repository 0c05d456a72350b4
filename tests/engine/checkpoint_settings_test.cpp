// SPDX-License-Identifier: Apache-2.0
// What a checkpoint says of settings and of weights with two names, and what load() makes of it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "support/expect_error.hpp"
#include "support/log_lines.hpp"
#include "support/manual_trainer.hpp"
#include "support/temporary_folder.hpp"

namespace outboard {
namespace {

using namespace testing;

TinyOptions model() {
  TinyOptions options;
  options.device = virtual_device();
  options.config.host.synthetic_topology = "numa:1 core:1 pu:1";
  options.config.loss_scaling = {.initial_scale = 64.0};
  options.parameters = {{"a", 5000}, {"b", 300}};
  return options;
}

class CheckpointSettings : public ::testing::Test {
 protected:
  void saved(const TinyOptions& options) {
    TinyTrainer trainer(options);
    trainer.start();
    trainer.run(3);
    expected_ = trainer.state(0);
    trainer.engine().save(folder.path("run"));
  }
  TemporaryFolder folder;
  TinyTrainer::State expected_;
};

/// Trained, saved and loaded under the names in another order: one state, one weight.
TEST_F(CheckpointSettings, GoOnWithTiedWeights) {
  Config config = model().config;
  config.loss_scaling = {.dynamic = false, .initial_scale = 1.0};
  std::vector<float> values(5000), gradient(5000);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = 0.001F * static_cast<float>(i % 97);
    gradient[i] = 0.01F * static_cast<float>(i % 89) - 0.4F;
  }
  const auto tied = [&](ManualTrainer& trainer, const char* first, const char* second,
                        const std::vector<float>& initial) {
    const GroupId group = trainer.engine->add_group(AdamW{.lr = 1e-2});
    const ParameterId id = trainer.add(first, initial, group);
    ParameterSpec again{second, DType::f16, initial.size(), trainer.weight(id), group, {}};
    EXPECT_EQ(trainer.engine->add_parameter(again), id);
    trainer.engine->commit();
    return id;
  };
  ManualTrainer straight(config);
  const ParameterId own = tied(straight, "wte", "head", values);
  for (int i = 0; i < 3; ++i) straight.step({{own, gradient}});
  straight.engine->save(folder.path("run"));
  ManualTrainer loaded(config);
  const ParameterId other = tied(loaded, "head", "wte", std::vector<float>(5000, 0.25F));
  EXPECT_EQ(loaded.engine->load(folder.path("run")).steps, 3U);
  EXPECT_TRUE(loaded.state(other) == straight.state(own));
  for (int i = 0; i < 2; ++i) {
    straight.step({{own, gradient}});
    loaded.step({{other, gradient}});
  }
  EXPECT_TRUE(loaded.state(other) == straight.state(own));
  EXPECT_EQ(loaded.state(other).t, 5U);
  const CheckpointInfo info = inspect_checkpoint(loaded.engine->save(folder.path("two")).folder);
  ASSERT_EQ(info.parameters.size(), 1U);
  EXPECT_EQ(info.parameters[0].name, "head");
}

TEST_F(CheckpointSettings, NameEverySettingThatWouldChangeTheTrajectory) {
  TinyOptions options = model();
  options.config.max_grad_norm = 0.5;
  options.config.accumulate = Accumulate::host;
  options.config.accumulation = options.passes = 2;
  saved(options);
  const auto refuse = [&](const auto& change, std::string_view words) {
    LogLines lines;
    TinyOptions other = options;
    change(other.config);
    other.config.log = lines.sink();
    other.passes = other.config.accumulate == Accumulate::host ? other.config.accumulation : 1;
    TinyTrainer trainer(other);
    trainer.start();
    expect_error(ErrorCode::bad_checkpoint, {words, "when the checkpoint was saved"},
                 [&] { trainer.engine().load(folder.path("run")); });
    const LoadReport report = trainer.engine().load(folder.path("run"), {.strict = false});
    ASSERT_EQ(report.differences.size(), 1U);
    EXPECT_NE(report.differences[0].find(words), std::string::npos) << report.differences[0];
    EXPECT_EQ(std::ranges::count_if(lines.texts(),
                                    [&](const auto& text) { return text.find(words) < 10; }),
              1);
    EXPECT_TRUE(trainer.state(0) == expected_);
  };
  refuse([](Config& config) { config.max_grad_norm = 0.25; },
         "Config::max_grad_norm is 0.25 and was 0.5");
  refuse([](Config& config) { config.max_grad_norm = HUGE_VAL; },
         "Config::max_grad_norm is 0 and was 0.5");
  refuse([](Config& config) { config.accumulation = 3; }, "Config::accumulation is 3 and was 2");
  refuse([](Config& config) { config.accumulate = Accumulate::trainer; },
         "Config::accumulate is Accumulate::trainer and was Accumulate::host");
  refuse([](Config& config) { config.loss_scaling.growth_interval = 7; },
         "LossScaling::growth_interval is 7 and was 2000");
  refuse([](Config& config) { config.loss_scaling.min_scale = 0.5; },
         "LossScaling::min_scale is 0.5 and was 1");
  refuse([](Config& config) { config.loss_scaling.max_scale = 128.0; },
         "LossScaling::max_scale is 128 and was 16777216");
  TinyOptions harmless = options;
  harmless.config.loss_scaling.give_up_after = 3;
  harmless.config.bucket_bytes = 8192;
  TinyTrainer trainer(harmless);
  trainer.start();
  trainer.engine().load(folder.path("run"));
}

TEST_F(CheckpointSettings, BringBackTheLossScale) {
  saved(model());
  TinyOptions options = model();
  options.config.loss_scaling.initial_scale = 2.0;
  TinyTrainer trainer(options);
  trainer.start();
  EXPECT_EQ(trainer.engine().loss_scale(), 2.0);
  trainer.engine().load(folder.path("run"));
  EXPECT_EQ(trainer.engine().loss_scale(), 64.0);
}

}  // namespace
}  // namespace outboard
