// SPDX-License-Identifier: Apache-2.0
/// Settings that cannot be are refused by name.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

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
  config.host.threads_per_node = 4'000'000'000;
  sim::Gpu other(virtual_device());
  expect_error(ErrorCode::invalid_config, {"threads_per_node is 4000000000", "at most 4096"},
               [&] { Engine engine(other.device(), config); });
  config = {};
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

TEST(BrokenConfig, KeepsLossScalesWhoseInverseIsAFloat) {
  expect_refused("initial_scale", [](Config& c) {
    c.loss_scaling.initial_scale = c.loss_scaling.min_scale = 0x1p-101;
  });
  expect_refused("initial_scale", [](Config& c) {
    c.loss_scaling.initial_scale = c.loss_scaling.max_scale = 0x1p101;
  });
  expect_refused("min_scale", [](Config& c) { c.loss_scaling.min_scale = 0x1p-140; });
  expect_refused("max_scale", [](Config& c) { c.loss_scaling.max_scale = 0x1p140; });
  Config widest;
  widest.loss_scaling.min_scale = 0x1p-100;
  widest.loss_scaling.max_scale = 0x1p100;
  EXPECT_NO_THROW(widest.validate());
}

/// Scalars that an update would take as infinite.
TEST(BrokenGroup, NamesTheFieldThatIsNoFloat) {
  struct Case {
    AdamW settings;
    const char* field;
  };
  const std::vector<Case> cases = {
      {{.lr = 1e39}, "AdamW::lr"},
      {{.lr = 1e38}, "AdamW::lr"},  // divided by 1 - beta1 in the first update
      {{.lr = 3.5e38, .beta1 = 0.0}, "AdamW::lr"},
      {{.eps = 3.5e38}, "AdamW::eps"},
      {{.lr = 1e30, .weight_decay = 1e30}, "AdamW::weight_decay"},
      {{.lr = 1.0, .weight_decay = 3.5e38}, "AdamW::weight_decay"},
  };
  const sim::Gpu gpu(virtual_device());
  Engine engine(gpu.device());
  const GroupId group = engine.add_group({});
  for (const Case& c : cases) {
    SCOPED_TRACE(c.field);
    expect_error(ErrorCode::invalid_config, {c.field, "3.4e38"}, [&] { c.settings.validate(); });
    expect_error(ErrorCode::invalid_config, {c.field}, [&] { engine.add_group(c.settings); });
    expect_error(ErrorCode::invalid_config, {c.field},
                 [&] { engine.set_group(group, c.settings); });
  }
  const AdamW largest{.lr = 3e38, .beta1 = 0.0, .eps = 3e38, .weight_decay = 1.0};
  EXPECT_NO_THROW(largest.validate());
}

}  // namespace
}  // namespace outboard::testing
