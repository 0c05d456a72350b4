// SPDX-License-Identifier: Apache-2.0
/// The memory model against what a model and an engine really take.
#include "fit.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "model.hpp"
#include "presets.hpp"
#include "text_support.hpp"
#include "trainer.hpp"

namespace gpt {
namespace {

namespace fs = std::filesystem;
using outboard::MemoryPlace;

struct Case {
  GptShape shape;
  MemoryMode mode;
};

example::Offload all_or_nothing(bool offload) {
  return {offload ? outboard::Placement::host : outboard::Placement::device_resident};
}

Case some_case(bool offload, bool checkpointing, GradBuffers buffers) {
  return {{.layers = 3, .width = 128, .heads = 4, .context = 64, .vocab = 256, .batch = 4},
          {.offload = all_or_nothing(offload),
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
  config.placement = c.mode.offload.placement;
  config.accumulation = c.mode.accumulation;
  if (c.mode.accumulation > 1) config.accumulate = outboard::Accumulate::host;
  config.bucket_bytes = c.mode.bucket;
  config.host.synthetic_topology = "numa:1 core:2 pu:1";
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

/// To the byte, on the device and on the host.
void expect_planned(const Case& c) {
  const Measured measured = measure(c);
  const MemoryNeed need = memory_need(c.shape, c.mode);
  EXPECT_EQ(need.device(), measured.device);
  EXPECT_EQ(need.host, measured.host);
}

TEST(Fit, KnowsTheParametersOfTheModelInTheirOrder) {
  const GptShape shape = some_case(true, true, GradBuffers::ring).shape;
  const Model model(outboard::sim::Gpu({.memory_bytes = std::size_t{64} << 20}), shape);
  std::vector<std::size_t> sizes;
  for (const Parameter& parameter : model.parameters()) sizes.push_back(parameter.elems);
  EXPECT_EQ(shape.parameter_sizes(), sizes);
}

TEST(Fit, PlansWhatARunTakesOfTheDeviceAndOfTheHost) {
  for (const bool checkpointing : {true, false}) {
    for (const GradBuffers buffers : {GradBuffers::ring, GradBuffers::full}) {
      for (const bool offload : {true, false}) {
        if (!offload && buffers == GradBuffers::ring) continue;
        SCOPED_TRACE(testing::Message()
                     << "checkpointing " << checkpointing << ", full "
                     << (buffers == GradBuffers::full) << ", offload " << offload);
        expect_planned(some_case(offload, checkpointing, buffers));
      }
    }
  }
}

TEST(Fit, PlansTheSumsOfSeveralMicroBatches) {
  for (const bool offload : {true, false}) {
    Case c = some_case(offload, true, offload ? GradBuffers::ring : GradBuffers::full);
    c.mode.accumulation = 3;
    expect_planned(c);
  }
}

/// The engine lets so many buckets be on their way into the sums: one more or less must show here.
TEST(Fit, PlansTheBucketsOnTheirWayIntoTheSums) {
  for (const std::size_t bucket : {std::size_t{64} << 10, std::size_t{1} << 20}) {
    Case c = some_case(true, true, GradBuffers::ring);
    c.mode.accumulation = 2;
    c.mode.bucket = bucket;
    SCOPED_TRACE(bucket);
    expect_planned(c);
  }
}

TEST(Fit, PlansMoreBucketsThanItLaysOutToAThousandth) {
  const GptShape shape = find_preset("30b")->shape;
  for (const std::uint32_t accumulation : {1U, 2U}) {
    const auto host = [&](std::size_t bucket) {
      return static_cast<double>(
          memory_need(shape, {.accumulation = accumulation, .bucket = bucket}).host);
    };
    const double exact = host(std::size_t{256} << 10);  // in 228,000 buckets
    EXPECT_NEAR(host(8192), exact, 1e-3 * exact);
  }
}

// --- the presets, with the trainer itself -------------------------------------------------------

class FitAndTrain : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / ("outboard_gpt_fit_" + std::to_string(getpid()));
    fs::create_directories(folder_);
    text_ = (folder_ / "text.txt").string();
    std::ofstream(text_) << text::test::made_up_text(100000, 2);
  }
  void TearDown() override { fs::remove_all(folder_); }

  [[nodiscard]] Options options(const std::string& preset, std::size_t device_memory,
                                const std::vector<std::string>& more = {}) const {
    const std::string memory = std::to_string(device_memory);
    std::vector<std::string> words{"outboard_gpt",    text_,  "--preset",        preset,
                                   "--device-memory", memory, "--steps",         "2",
                                   "--eval-every",    "1",    "--sample-tokens", "4",
                                   "--eval-tokens",   "512",  "--batch",         "4"};
    words.insert(words.end(), more.begin(), more.end());
    std::vector<const char*> arguments;
    for (const std::string& word : words) arguments.push_back(word.c_str());
    return *parse_options(static_cast<int>(arguments.size()), arguments.data());
  }
  [[nodiscard]] static std::string largest(const Options& options) {
    return fit_presets(options, {options.device_memory, std::size_t{1} << 40}).largest;
  }
  /// Trains, evaluates and writes. @return whether the device was large enough.
  [[nodiscard]] static bool trains(const Options& options) {
    const Tokens tokens = load_tokens({.paths = options.data, .context = options.shape.context});
    std::ostringstream out;
    try {
      Trainer trainer(options, tokens, out);
      trainer.run(false);
      trainer.print_summary();
      trainer.print_sample();
      const outboard::sim::MemoryUse use = trainer.device_memory();
      EXPECT_EQ(use.limit_bytes, options.device_memory);
      EXPECT_LE(use.peak_bytes, use.limit_bytes);
      EXPECT_EQ(use.peak_bytes, memory_need(options.shape, memory_mode(options)).device());
    } catch (const outboard::Error& error) {
      EXPECT_EQ(error.code(), outboard::ErrorCode::out_of_memory) << error.what();
      return false;
    }
    EXPECT_NE(out.str().find("2 applied, 0 skipped"), std::string::npos) << out.str();
    return true;
  }
  fs::path folder_;
  std::string text_;
};

TEST_F(FitAndTrain, TheLargestTrainsAndTheNextLargerIsRefused) {
  const auto all = presets();
  for (const char* checkpointing : {"on", "off"}) {
    for (std::size_t i = 0; i + 1 < all.size() && std::string(all[i].name) != "small"; ++i) {
      SCOPED_TRACE(testing::Message() << all[i].name << ", checkpointing " << checkpointing);
      const auto of = [&](std::size_t preset, std::size_t bytes) {
        return options(all[preset].name, bytes, {"--checkpointing", checkpointing});
      };
      const Options some = of(i, 1 << 20);
      const std::size_t needed = memory_need(some.shape, memory_mode(some)).device();
      // To the byte: in that much it is the largest and trains; in less neither.
      EXPECT_EQ(largest(of(i, needed)), all[i].name);
      EXPECT_TRUE(trains(of(i, needed)));
      EXPECT_FALSE(trains(of(i + 1, needed)));
      EXPECT_NE(largest(of(i, needed - 1)), all[i].name);
      EXPECT_FALSE(trains(of(i, needed - 1)));
    }
  }
}

TEST(Fit, EachChoiceSavesWhatItPromises) {
  const GptShape shape = find_preset("1.5b")->shape;
  const auto device = [&shape](bool offload, bool checkpointing, GradBuffers buffers) {
    return memory_need(shape, {.offload = all_or_nothing(offload),
                               .checkpointing = checkpointing,
                               .grad_buffers = buffers})
        .device();
  };
  const std::size_t elems = shape.parameter_elems();
  // What the engine packs small tensors of the host's buckets into is all that differs from that.
  const std::size_t saved =
      device(false, true, GradBuffers::full) - device(true, true, GradBuffers::full);
  EXPECT_LE(saved, 12 * elems);
  EXPECT_GT(saved, 12 * elems - elems / 1000);
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
