// SPDX-License-Identifier: Apache-2.0
/// Shards on several nodes and threads: empty ones take part in every step, and all of them take
/// the same decision to skip one.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "support/tiny_trainer.hpp"

namespace outboard::testing {
namespace {

TinyOptions model(const std::string& topology, const std::vector<std::uint64_t>& elems) {
  TinyOptions options;
  options.device.memory_bytes = std::size_t{4} << 20;
  options.config.host.synthetic_topology = topology;
  options.config.host.threads_per_node = 2;
  options.config.max_grad_norm = 1e-3;  // clips whatever three elements have
  options.config.loss_scaling = {.initial_scale = 64.0, .growth_interval = 50};
  options.config.bucket_bytes = 8192;
  for (const std::uint64_t each : elems) {
    options.parameters.emplace_back();
    options.parameters.back().elems = each;
  }
  options.digest = false;
  options.max_steps = 128;
  return options;
}

std::uint64_t digest_after(const TinyOptions& options, std::uint64_t steps) {
  TinyTrainer trainer(options);
  trainer.start();
  for (const TinyStep& step : trainer.run(steps)) {
    EXPECT_TRUE(step.result.applied());
    EXPECT_LT(step.result.clip, 1.0);
  }
  return trainer.engine().state_digest();
}

/// Most nodes and threads have nothing to update, and none of them holds a step up.
TEST(Shards, WithoutElementsTakePartInEveryStep) {
  constexpr std::uint64_t kSteps = 100;
  const std::vector<std::vector<std::uint64_t>> models = {{5}, {3}, {0, 5, 0}, {1, 1, 1}};
  for (const std::vector<std::uint64_t>& elems : models) {
    TinyOptions alone = model("numa:1 core:1 pu:1", elems);
    alone.config.host.threads_per_node = 1;
    const std::uint64_t expected = digest_after(alone, kSteps);
    for (const char* topology : {"numa:2 core:2 pu:1", "numa:4 core:2 pu:1", "core:8 pu:1"}) {
      for (const sim::Mode mode : {sim::Mode::threads, sim::Mode::virtual_time}) {
        TinyOptions options = model(topology, elems);
        options.device.mode = mode;
        if (std::string(topology) == "core:8 pu:1") options.config.host.threads_per_node = 8;
        EXPECT_EQ(digest_after(options, kSteps), expected) << topology << ", " << elems.size();
      }
    }
  }
}

/// Inf in the last element of the last bucket alone, or in two buckets of different nodes.
void expect_one_decision(TinyOptions options, bool two) {
  constexpr std::uint64_t kBad = 1;
  const auto last = static_cast<std::uint32_t>(options.parameters.size() - 1);
  options.injected = {
      {.step = kBad, .parameter = last, .element = options.parameters[last].elems - 1}};
  if (two) options.injected.push_back({.step = kBad, .parameter = 0, .element = 0});
  TinyTrainer trainer(options);
  trainer.start();
  ASSERT_TRUE(trainer.step().result.applied());
  std::vector<TinyTrainer::State> before;
  for (std::uint32_t i = 0; i <= last; ++i) before.push_back(trainer.state(i));
  const StepResult skipped = trainer.step().result;
  ASSERT_TRUE(skipped.skipped());
  EXPECT_EQ(skipped.next_loss_scale, skipped.loss_scale / 2);
  trainer.engine().synchronize();
  for (std::uint32_t i = 0; i <= last; ++i) EXPECT_EQ(trainer.state(i), before[i]) << i;
  ASSERT_TRUE(trainer.step().result.applied());
  EXPECT_EQ(trainer.engine().loss_scale(), 32.0);
  for (std::uint32_t i = 0; i <= last; ++i) {
    EXPECT_EQ(trainer.engine().step_count(trainer.id(i)), 2U) << i;
  }
  EXPECT_EQ(trainer.engine().stats().steps_skipped, 1U);
}

/// Eight buckets on two or four nodes, with delays and orders drawn anew each time.
TEST(Shards, SkipTogether) {
  const std::vector<std::uint64_t> elems(8, 3000);
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    TinyOptions options = model(seed % 2 == 0 ? "numa:4 core:2 pu:1" : "numa:2 core:2 pu:1", elems);
    options.device.mode = sim::Mode::virtual_time;
    options.device.seed = seed;
    options.device.max_random_delay = std::chrono::microseconds(seed % 5 * 20);
    options.device.rates.host_elems_per_s = {1e8, 3e7, 2e8, 5e7};
    expect_one_decision(options, seed % 3 == 0);
    if (HasFatalFailure()) return;
  }
}

TEST(Shards, SkipTogetherOnRealThreads) {
  const std::vector<std::uint64_t> elems(8, 3000);
  for (int i = 0; i < 60; ++i) {
    SCOPED_TRACE(i);
    expect_one_decision(model(i % 2 == 0 ? "numa:4 core:2 pu:1" : "numa:2 core:2 pu:1", elems),
                        i % 3 == 0);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace outboard::testing
