// SPDX-License-Identifier: Apache-2.0
// Planned bytes against those of a transformer that was made: what the device has handed out, and
// the engine's own ledger.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <vector>

#include "cli/plan_errors.hpp"
#include "cli/plan_request.hpp"
#include "model.hpp"

namespace outboard::cli {
namespace {

struct Case {
  gpt::GptShape shape;
  bool checkpointing = true;
  bool ring = true;
  std::uint32_t nodes = 1;
};

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const std::size_t layers : {1U, 2U, 5U}) {
    for (const std::size_t width : {64U, 192U}) {
      const gpt::GptShape shape{.layers = layers,
                                .width = width,
                                .heads = 4,
                                .context = width,
                                .vocab = 64 * layers,
                                .batch = 2 + layers};
      cases.push_back({shape, true, true, 1});
      cases.push_back({shape, false, layers == 5, static_cast<std::uint32_t>(layers)});
    }
  }
  return cases;
}

PlanRequest request_for(const Case& c) {
  const gpt::GptShape& from = c.shape;
  PlanRequest request;
  ModelShape& shape = request.shape;
  shape.layers = from.layers;
  shape.width = from.width;
  shape.heads = shape.kv_heads = from.heads;
  shape.head_width = from.head_width();
  shape.inner = 4 * from.width;
  shape.vocab = from.vocab;
  shape.positions = from.context;
  shape.tied = shape.layer_norm = shape.linear_bias = true;
  request.tokens = from.positions(from.batch);
  request.context = from.context;
  request.nodes = c.nodes;
  request.checkpointing = c.checkpointing;
  request.gradient_ring = c.ring;
  request.whole_logits = false;
  request.bucket_bytes = std::uint64_t{64} << 10;
  return request;
}

struct Use {
  std::uint64_t device = 0, pinned = 0, pageable = 0, elems = 0;
};

Use measured(const Case& c, std::size_t bucket_bytes) {
  sim::Gpu gpu({.memory_bytes = std::size_t{256} << 20, .mode = sim::Mode::virtual_time});
  gpt::Model model(gpu, c.shape,
                   {.checkpointing = c.checkpointing,
                    .grad_buffers = c.ring ? gpt::GradBuffers::ring : gpt::GradBuffers::full});
  Config config;
  config.bucket_bytes = bucket_bytes;
  config.host.synthetic_topology = "numa:" + std::to_string(c.nodes) + " core:1 pu:1";
  config.host.threads_per_node = 1;
  Engine engine(gpu.device(), config);
  const gpt::Groups groups{engine.add_group({}), engine.add_group({})};
  const auto initial = model.initial_weights(1);
  model.add_to(engine, groups, initial);
  engine.commit();
  const MemoryLedger ledger = engine.ledger();
  return {gpu.memory().used_bytes, ledger.bytes(MemoryPlace::host_pinned),
          ledger.bytes(MemoryPlace::host_pageable), ledger.trainable_elems};
}

TEST(PlanReality, TotalsAreWithinTenPercentAndHardlyEverUnder) {
  PlanErrors errors;
  for (const Case& c : all_cases()) {
    SCOPED_TRACE(std::to_string(c.shape.layers) + " layers of " + std::to_string(c.shape.width));
    const PlanRequest request = request_for(c);
    const MemoryPlan plan = plan_bytes(request.shape, request);
    const Use real = measured(c, static_cast<std::size_t>(request.bucket_bytes));
    EXPECT_EQ(count_parameters(request.shape), real.elems);
    errors.compare("device", sum_of(plan.device), real.device);
    errors.compare("pinned", sum_of(plan.pinned), real.pinned);
    errors.compare("pageable", sum_of(plan.pageable), real.pageable);
  }
  errors.print(all_cases().size(), "models");
}

}  // namespace
}  // namespace outboard::cli
