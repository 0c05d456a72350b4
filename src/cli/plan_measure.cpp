// SPDX-License-Identifier: Apache-2.0
// This machine's update rate, by steps of an engine on the software GPU.
#include <algorithm>
#include <vector>

#include "cli/plan_request.hpp"
#include "outboard/outboard.hpp"

namespace outboard::cli {
namespace {

constexpr std::uint64_t kElems = std::uint64_t{1} << 24;  // beyond any cache
constexpr int kSteps = 5;
constexpr std::size_t kBytes = kElems * 2;

/// Elements updated per second by one node, on average: busy time counts each node's own.
double node_rate(Engine& engine, ParameterId parameter, const void* gradient, sim::Gpu& gpu,
                 NativeStream stream) {
  const auto step = [&] {
    engine.wait(parameter, stream);
    engine.gradient_ready(parameter, gradient, stream);
    (void)engine.step();
    engine.synchronize();
    gpu.synchronize();
  };
  step();  // touches everything once
  const double before_us = engine.stats().update_busy_us;
  for (int i = 0; i < kSteps; ++i) step();
  const double busy_us = engine.stats().update_busy_us - before_us;
  return static_cast<double>(kElems) * kSteps * 1e6 / busy_us;
}

std::uint32_t nodes_of(const MemoryLedger& ledger) {
  std::uint32_t nodes = 1;
  for (const LedgerEntry& entry : ledger.entries) nodes = std::max(nodes, entry.node + 1);
  return nodes;
}

}  // namespace

double measure_host_update() {
  sim::Gpu gpu({.memory_bytes = 3 * kBytes});
  const NativeStream stream = gpu.create_stream("trainer");
  void* weight = gpu.allocate(kBytes);
  void* gradient = gpu.allocate(kBytes);
  const std::vector<std::byte> zeros(kBytes);
  gpu.copy_to_device(weight, zeros, stream);
  gpu.copy_to_device(gradient, zeros, stream);
  gpu.synchronize();
  Config config;
  config.loss_scaling = {.dynamic = false, .initial_scale = 1.0};
  Engine engine(gpu.device(), config);
  const GroupId group = engine.add_group(AdamW{});
  const ParameterId parameter =
      engine.add_parameter({.name = "weight", .elems = kElems, .data = weight, .group = group});
  engine.commit();
  const double rate = node_rate(engine, parameter, gradient, gpu, stream);
  return rate * nodes_of(engine.ledger());
}

}  // namespace outboard::cli
