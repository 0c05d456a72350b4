// SPDX-License-Identifier: Apache-2.0
/// Config::check_waits: a reader that does not wait sees NaN, all others see what they should.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "support/manual_trainer.hpp"
#include "support/tiny_trainer.hpp"

namespace outboard::testing {
namespace {

/// The loss of the forward after one step, read before the host has updated anything.
double loss_after_a_step(bool wait, bool check_waits, bool skip) {
  TinyOptions options;
  options.device = virtual_device();
  options.device.rates.link_down_bytes_per_s = 20e3;  // 10 ms for 100 halves
  options.device.rates.host_elems_per_s = {1e3};      // 100 ms for 100 elements
  options.config.loss_scaling.initial_scale = 1.0;
  options.config.check_waits = check_waits;
  options.config.host.synthetic_topology = "numa:1 core:2 pu:1";
  options.parameters.resize(2);
  options.parameters[0].elems = 100;
  options.parameters[1].elems = 100;
  options.wait = wait;
  options.digest = false;
  if (skip) options.injected.push_back({.step = 0, .parameter = 1, .element = 3});
  TinyTrainer trainer(options);
  trainer.start();
  trainer.step();
  // A copy keeps the reader busy until the weights have been filled with NaN, if they are.
  std::vector<std::uint16_t> pause(100);
  trainer.gpu().copy_to_host(std::as_writable_bytes(std::span(pause)), trainer.weight(0),
                             trainer.reader());
  trainer.forward();
  return trainer.loss(1);
}

TEST(CheckWaits, ShowsAReaderThatDoesNotWait) {
  EXPECT_TRUE(std::isnan(loss_after_a_step(false, true, false)));
}

TEST(CheckWaits, LeavesAReaderThatWaitsAlone) {
  const double loss = loss_after_a_step(true, false, false);
  EXPECT_TRUE(std::isfinite(loss));
  EXPECT_EQ(loss_after_a_step(true, true, false), loss);
  // Without the check a missing wait trains on the old weights in silence: what it is for.
  const double stale = loss_after_a_step(false, false, false);
  EXPECT_TRUE(std::isfinite(stale));
  EXPECT_NE(stale, loss);
}

TEST(CheckWaits, LeavesTheWeightsOfASkippedStepAlone) {
  EXPECT_TRUE(std::isfinite(loss_after_a_step(false, true, true)));
}

TEST(CheckWaits, LeavesParametersWithoutGradientAlone) {
  Config config;
  config.loss_scaling.dynamic = false;
  config.loss_scaling.initial_scale = 1.0;
  config.check_waits = true;
  ManualTrainer trainer(config);
  const GroupId group = trainer.engine->add_group({});
  const ParameterId moved = trainer.add("moved", {1.0F}, group);
  const ParameterId still = trainer.add("still", {1.5F}, group);
  trainer.engine->commit();
  trainer.step({{moved, {1.0F}}});
  const auto bits = download<std::uint16_t>(trainer.gpu, trainer.weight(still), 1, trainer.stream);
  EXPECT_EQ(half_to_float(bits[0]), 1.5F);
}

}  // namespace
}  // namespace outboard::testing
