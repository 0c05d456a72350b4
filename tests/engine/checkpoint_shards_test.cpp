// SPDX-License-Identifier: Apache-2.0
// A checkpoint of some shards is loaded into any other number of them, and back.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "support/temporary_folder.hpp"
#include "support/tiny_trainer.hpp"

namespace outboard {
namespace {

using namespace testing;

/// 1,000,003 elements in eleven tensors, over so many nodes.
TinyOptions eleven_tensors(int nodes) {
  TinyOptions options;
  options.device = virtual_device();
  options.config.host.synthetic_topology = "numa:" + std::to_string(nodes) + " core:1 pu:1";
  options.config.bucket_bytes = std::size_t{128} << 10;
  options.config.max_grad_norm = 1.0;
  options.config.loss_scaling = {.initial_scale = 64.0};
  std::uint64_t left = 1'000'003;
  for (std::uint64_t i = 0; i < 10; ++i) {
    const std::uint64_t elems = 1 + i * i * 3001;
    options.parameters.push_back({"t" + std::to_string(i), elems});
    left -= elems;
  }
  options.parameters.push_back({"last", left});
  return options;
}

std::vector<TinyTrainer::State> all_state(TinyTrainer& trainer) {
  std::vector<TinyTrainer::State> all;
  for (std::uint32_t i = 0; i < trainer.in_use(); ++i) all.push_back(trainer.state(i));
  return all;
}

TEST(CheckpointShards, AreAnyNumber) {
  const TemporaryFolder folder;
  TinyTrainer four(eleven_tensors(4));
  four.start();
  four.run(2);
  four.engine().save(folder.path("four"));
  const auto saved = all_state(four);
  four.run(1);
  const auto next = all_state(four);
  four.run(1);
  const std::uint64_t after_next = four.engine().state_digest();
  for (const int nodes : {1, 2, 3, 5, 7, 8}) {
    SCOPED_TRACE(std::to_string(nodes) + " nodes");
    const std::string other_run = folder.path(std::to_string(nodes));
    TinyTrainer other(eleven_tensors(nodes));
    other.start();
    other.engine().load(folder.path("four"));
    EXPECT_TRUE(all_state(other) == saved);
    other.continue_at(2);
    other.run(1);
    EXPECT_TRUE(all_state(other) == next);
    other.engine().save(other_run);
    TinyTrainer back(eleven_tensors(4));
    back.start();
    back.engine().load(other_run);
    EXPECT_TRUE(all_state(back) == next);
    back.continue_at(3);
    back.run(1);
    EXPECT_EQ(back.engine().state_digest(), after_next);
  }
}

/// One that has never had a gradient keeps a step count of 0, wherever it stands.
TEST(CheckpointShards, LeaveAParameterWithoutStepsAtZero) {
  const TemporaryFolder folder;
  TinyOptions options;
  options.device = virtual_device();
  options.config.host.synthetic_topology = "numa:2 core:1 pu:1";
  options.config.loss_scaling = {.initial_scale = 64.0};
  options.parameters = {{"a", 5000}, {"b", 5000}, {"c", 5000}};
  options.has_gradient = [](std::uint64_t /*step*/, std::uint32_t parameter) {
    return parameter != 1;
  };
  TinyTrainer saver(options);
  saver.start();
  saver.run(3);
  saver.engine().save(folder.path("run"));
  options.parameters = {{"c", 5000}, {"a", 5000}, {"b", 5000}};
  TinyTrainer loaded(options);
  loaded.start();
  loaded.engine().load(folder.path("run"));
  EXPECT_TRUE(loaded.state(0) == saver.state(2));
  EXPECT_TRUE(loaded.state(1) == saver.state(0));
  EXPECT_TRUE(loaded.state(2) == saver.state(1));
  EXPECT_EQ(loaded.state(2).t, 0U);
  EXPECT_EQ(loaded.state(1).t, 3U);
  EXPECT_EQ(loaded.state(2).m, std::vector<float>(5000, 0.0F));
}

}  // namespace
}  // namespace outboard
