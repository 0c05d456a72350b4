// SPDX-License-Identifier: Apache-2.0
/// Schedule::blocking: a trainer that never calls wait() trains as one that does.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "engine/flavours.hpp"
#include "engine/trajectory.hpp"
#include "support/expect_error.hpp"
#include "support/manual_trainer.hpp"

namespace outboard::testing {
namespace {

using std::chrono::milliseconds;

class Blocking : public ::testing::TestWithParam<Flavour> {
 protected:
  [[nodiscard]] static Config blocking(const Config& config) {
    Config out = GetParam().apply(config);
    out.schedule = Schedule::blocking;
    return out;
  }
};
INSTANTIATE_TEST_SUITE_P(Ways, Blocking,
                         ::testing::ValuesIn(flavours_where([](const Flavour& flavour) {
                           return flavour.schedule == Schedule::exact;
                         })),
                         [](const auto& test) { return flavour_name(test.param); });

TinyOptions model(const Flavour& flavour, std::uint64_t seed) {
  TinyOptions options;
  options.device = flavour.device();
  options.device.seed = seed;
  Config config;
  config.max_grad_norm = 1.0;
  config.loss_scaling.initial_scale = 64.0;
  options.config = flavour.apply(config);
  add_parameters(options, std::vector<std::uint64_t>{5000, 7, 0, 4096, 300, 12289});
  options.injected = {{.step = 2, .parameter = 3, .element = 17}};
  options.has_gradient = [](std::uint64_t step, std::uint32_t i) { return i != 4 || step != 1; };
  return options;
}

TEST_P(Blocking, NeverCallingWaitChangesNoBit) {
  const Trajectory reference = run_trajectory(model(GetParam(), 1), {.steps = 6});
  ASSERT_TRUE(reference[2].skipped);
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    TinyOptions options = model(GetParam(), seed);
    options.config.schedule = Schedule::blocking;
    options.config.check_waits = seed % 2 == 0;
    options.wait = false;
    options.device.max_random_delay = milliseconds(seed);
    if (options.device.mode == sim::Mode::threads) options.device.max_random_delay = {};
    const Trajectory seen = run_trajectory(options, {.steps = 6, .digests = 0});
    EXPECT_EQ(first_difference(reference, seen), "") << "seed " << seed;
  }
}

/// The same trainer on the exact schedule: what blocking is for.
TEST_P(Blocking, ExactRefusesATrainerThatNeverWaits) {
  TinyOptions options = model(GetParam(), 1);
  options.wait = false;
  expect_error(ErrorCode::protocol_error, {"wait()", "stale"},
               [&] { run_trajectory(options, {.steps = 3}); });
}

/// A stream that the engine has never seen reads the weights as soon as step() has returned.
TEST_P(Blocking, StepReturnsWhenTheDeviceHasTheWeights) {
  sim::Options device = GetParam().device();
  device.rates.link_up_bytes_per_s = 1e8;
  device.max_random_delay = milliseconds(device.mode == sim::Mode::threads ? 0 : 20);
  ManualTrainer trainer(blocking({}), device);
  Engine& engine = *trainer.engine;
  const NativeStream other = trainer.gpu.create_stream("never seen");
  const GroupId group = engine.add_group({.lr = 0.5});
  const ParameterId p = trainer.add("p", std::vector<float>(9000, 1.0F), group);
  engine.commit();
  std::vector<std::uint16_t> before(9000, half_from_float(1.0F));
  for (int step = 0; step < 3; ++step) {
    trainer.give(p, std::vector<float>(9000, 1.0F));
    EXPECT_TRUE(engine.step().applied());
    const auto now = download<std::uint16_t>(trainer.gpu, trainer.weight(p), 9000, other);
    for (std::size_t e = 0; e < now.size(); ++e) ASSERT_NE(now[e], before[e]) << e;
    before = now;
  }
  trainer.engine.reset();
  trainer.gpu.destroy_stream(other);
}

TEST_P(Blocking, WaitNeverHoldsTheHostUp) {
  sim::Options device = GetParam().device();
  device.rates.host_elems_per_s = {1e6};
  ManualTrainer trainer(blocking({}), device);
  Engine& engine = *trainer.engine;
  const ParameterId p = trainer.add("p", std::vector<float>(9000, 1.0F), engine.add_group({}));
  engine.commit();
  for (int step = 0; step < 3; ++step) {
    trainer.give(p, std::vector<float>(9000, 1.0F));
    EXPECT_TRUE(engine.step().applied());
    const std::uint64_t waits = trainer.gpu.counters().host_waits;
    const sim::Duration now = trainer.gpu.now();
    engine.wait(p, trainer.stream);
    EXPECT_EQ(trainer.gpu.counters().host_waits, waits);
    if (device.mode == sim::Mode::virtual_time) {
      EXPECT_EQ(trainer.gpu.now(), now);
    }
  }
  const StepStats stats = engine.stats();
  if (device.mode == sim::Mode::threads) return;
  EXPECT_EQ(stats.refresh_wait_us, 0.0);
  EXPECT_EQ(stats.drain_wait_us, 0.0);
  // 3 updates of 9 ms, on two nodes of less; where the host makes them.
  if (GetParam().placement == Placement::host) {
    EXPECT_GE(stats.finish_wait_us, 12000.0);
  }
}

}  // namespace
}  // namespace outboard::testing
