// SPDX-License-Identifier: Apache-2.0
/// Settings that cannot be are refused by name.
#include <gtest/gtest.h>

#include <cmath>

#include "outboard/outboard.hpp"
#include "support/expect_error.hpp"
#include "support/tiny_trainer.hpp"

namespace outboard::testing {
namespace {

void expect_refused(const char* field, void (*change)(Config&)) {
  Config config;
  change(config);
  SCOPED_TRACE(field);
  expect_error(ErrorCode::invalid_config, {field}, [&] { config.validate(); });
  sim::Gpu gpu(virtual_device());
  expect_error(ErrorCode::invalid_config, {field}, [&] { Engine engine(gpu.device(), config); });
}

TEST(BrokenConfig, NamesTheFieldOfTheEngine) {
  expect_refused("max_grad_norm", [](Config& c) { c.max_grad_norm = -1.0; });
  expect_refused("max_grad_norm", [](Config& c) { c.max_grad_norm = std::nan(""); });
  expect_refused("accumulation", [](Config& c) { c.accumulation = 0; });
  expect_refused("bucket_bytes", [](Config& c) { c.bucket_bytes = 8191; });
  expect_refused("pinned_slots", [](Config& c) { c.pinned_slots = 0; });
  Config config;
  config.host.synthetic_topology = "a machine of dreams";
  sim::Gpu gpu(virtual_device());
  expect_error(ErrorCode::invalid_config, {"a machine of dreams"},
               [&] { Engine engine(gpu.device(), config); });
}

TEST(BrokenConfig, NamesTheFieldOfTheLossScale) {
  expect_refused("initial_scale", [](Config& c) { c.loss_scaling.initial_scale = 1000.0; });
  expect_refused("initial_scale", [](Config& c) { c.loss_scaling.initial_scale = 0.0; });
  expect_refused("initial_scale", [](Config& c) { c.loss_scaling.initial_scale = -2.0; });
  expect_refused("initial_scale", [](Config& c) { c.loss_scaling.initial_scale = std::nan(""); });
  expect_refused("growth_interval", [](Config& c) { c.loss_scaling.growth_interval = 0; });
  expect_refused("min_scale", [](Config& c) { c.loss_scaling.min_scale = 0.0; });
  expect_refused("min_scale", [](Config& c) { c.loss_scaling.min_scale = 3.0; });
  expect_refused("max_scale", [](Config& c) { c.loss_scaling.max_scale = 32768.0; });
  expect_refused("give_up_after", [](Config& c) { c.loss_scaling.give_up_after = 0; });
}

}  // namespace
}  // namespace outboard::testing
