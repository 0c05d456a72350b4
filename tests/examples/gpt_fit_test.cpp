// SPDX-License-Identifier: Apache-2.0
/// The memory model against what a model and an engine really take.
#include "fit.hpp"

#include <gtest/gtest.h>

#include "model.hpp"
#include "presets.hpp"

namespace gpt {
namespace {

using outboard::MemoryPlace;

struct Case {
  GptShape shape;
  MemoryMode mode;
};

Case some_case(bool offload, bool checkpointing, GradBuffers buffers) {
  return {{.layers = 3, .width = 128, .heads = 4, .context = 64, .vocab = 256, .batch = 4},
          {.offload = offload,
           .checkpointing = checkpointing,
           .grad_buffers = buffers,
           .bucket = 64 << 10}};
}

struct Measured {
  std::size_t device = 0, host = 0;
};

/// Trains one step with what the memory model says, in a device with room enough.
Measured measure(const Case& c) {
  outboard::sim::Gpu gpu({.memory_bytes = std::size_t{64} << 20});
  Model model(gpu, c.shape,
              {.checkpointing = c.mode.checkpointing, .grad_buffers = c.mode.grad_buffers});
  const auto stream = gpu.create_stream();
  outboard::Config config;
  config.placement =
      c.mode.offload ? outboard::Placement::host : outboard::Placement::device_resident;
  config.accumulation = c.mode.accumulation;
  if (c.mode.accumulation > 1) config.accumulate = outboard::Accumulate::host;
  config.bucket_bytes = c.mode.bucket;
  outboard::Engine engine(gpu.device(), config);
  const outboard::GroupId group = engine.add_group({});
  const auto initial = model.initial_weights(1);
  model.add_to(engine, {.decay = group, .no_decay = group}, initial);
  engine.commit();
  std::vector<Token> rows(c.shape.batch * c.shape.row_tokens());
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<Token>(i * i % 251);
  double loss = 0.0;
  for (std::uint32_t i = 0; i < c.mode.accumulation; ++i) {
    model.set_tokens(rows, stream);
    model.forward(engine, c.shape.batch, stream);
    model.loss(engine, c.shape.batch, engine.loss_scale(), &loss, stream);
    model.backward(engine, c.shape.batch, stream);
  }
  EXPECT_TRUE(engine.step().applied());
  engine.synchronize();
  const outboard::MemoryLedger ledger = engine.ledger();
  return {gpu.memory().peak_bytes,
          ledger.bytes(MemoryPlace::host_pinned) + ledger.bytes(MemoryPlace::host_pageable)};
}

void expect_near(std::size_t planned, std::size_t measured) {
  EXPECT_NEAR(static_cast<double>(planned), static_cast<double>(measured),
              0.01 * static_cast<double>(measured));
}

TEST(Fit, PlansWhatARunTakesOfTheDeviceAndOfTheHost) {
  for (const bool checkpointing : {true, false}) {
    for (const GradBuffers buffers : {GradBuffers::ring, GradBuffers::full}) {
      for (const bool offload : {true, false}) {
        if (!offload && buffers == GradBuffers::ring) continue;
        SCOPED_TRACE(testing::Message()
                     << "checkpointing " << checkpointing << ", full "
                     << (buffers == GradBuffers::full) << ", offload " << offload);
        const Case c = some_case(offload, checkpointing, buffers);
        const Measured measured = measure(c);
        const MemoryNeed need = memory_need(c.shape, c.mode);
        expect_near(need.device(), measured.device);
        if (offload) expect_near(need.host(), measured.host);
      }
    }
  }
}

TEST(Fit, PlansTheSumsOfSeveralMicroBatches) {
  for (const bool offload : {true, false}) {
    Case c = some_case(offload, true, offload ? GradBuffers::ring : GradBuffers::full);
    c.mode.accumulation = 3;
    const Measured measured = measure(c);
    const MemoryNeed need = memory_need(c.shape, c.mode);
    expect_near(need.device(), measured.device);
    if (offload) expect_near(need.host(), measured.host);
  }
}

TEST(Fit, EachChoiceSavesWhatItPromises) {
  const GptShape shape = find_preset("1.5b")->shape;
  const auto device = [&shape](bool offload, bool checkpointing, GradBuffers buffers) {
    return memory_need(
               shape, {.offload = offload, .checkpointing = checkpointing, .grad_buffers = buffers})
        .device();
  };
  const std::size_t elems = shape.parameter_elems();
  EXPECT_EQ(device(false, true, GradBuffers::full) - device(true, true, GradBuffers::full),
            12 * elems);
  EXPECT_GT(device(true, true, GradBuffers::full) - device(true, true, GradBuffers::ring), elems);
  EXPECT_GT(device(true, false, GradBuffers::ring), device(true, true, GradBuffers::ring));
  EXPECT_EQ(device_bytes_without_offload(shape), device(false, false, GradBuffers::full));
}

TEST(Fit, PresetsHaveTheParametersOfTheirNames) {
  const std::vector<std::pair<const char*, double>> known{
      {"124m", 124e6},  {"355m", 355e6},  {"774m", 774e6}, {"1.5b", 1.56e9},
      {"2.7b", 2.65e9}, {"6.7b", 6.65e9}, {"13b", 12.85e9}};
  for (const auto& [name, elems] : known) {
    const GptShape shape = shape_of(find_preset(name)->shape, {}, TokenKind::uint16);
    EXPECT_NEAR(static_cast<double>(shape.parameter_elems()), elems, 0.01 * elems) << name;
  }
}

TEST(Fit, TheLargestIsTheLastThatFitsBoth) {
  Options options;
  options.tokens = TokenKind::uint16;
  const auto largest = [&options](std::size_t device_gib, std::size_t host_gib) {
    return fit_presets(options, {device_gib << 30, host_gib << 30}).largest;
  };
  EXPECT_EQ(largest(80, 1024), "30b");
  EXPECT_EQ(largest(80, 256), "13b");
  EXPECT_EQ(largest(80, 24), "1.5b") << "14 bytes per parameter on the host";
  EXPECT_EQ(largest(0, 24), "");
}

}  // namespace
}  // namespace gpt
