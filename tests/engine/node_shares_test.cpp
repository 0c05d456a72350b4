// SPDX-License-Identifier: Apache-2.0
/// Unequal NUMA nodes: each takes what it can update in the same time, as far as its memory goes.
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "support/expect_error.hpp"
#include "support/tiny_trainer.hpp"

namespace outboard::testing {
namespace {

constexpr std::uint64_t kSteps = 4;

TinyOptions model(const std::string& topology, std::vector<double> rates) {
  TinyOptions options;
  options.device.mode = sim::Mode::virtual_time;
  options.device.memory_bytes = std::size_t{16} << 20;
  options.device.rates.host_elems_per_s = std::move(rates);
  options.config.host.synthetic_topology = topology;
  options.config.max_grad_norm = 1.0;
  options.config.loss_scaling = {.dynamic = false, .initial_scale = 1.0};
  options.config.bucket_bytes = std::size_t{32} << 10;
  for (const std::uint64_t elems : {300'000U, 7U, 400'000U, 100'000U, 200'000U}) {
    options.parameters.emplace_back();
    options.parameters.back().elems = elems;
  }
  options.digest = false;
  return options;
}

// What the host shares with the device alone; slots are the buckets'.
TEST(DeviceNode, RingAndScalarsLieBesideTheDevice) {
  for (const std::uint32_t node : {0U, 1U}) {
    TinyOptions options = model("numa:2 core:2 pu:1", {1e6, 1e6});
    options.config.pinned_slots = 8;
    options.device.numa_node = node;
    TinyTrainer trainer(options);
    trainer.start();
    trainer.run(1);
    std::map<std::string, std::set<std::uint32_t>> nodes;
    for (const LedgerEntry& entry : trainer.engine().ledger().entries) {
      if (entry.place != MemoryPlace::device) nodes[entry.purpose].insert(entry.node);
    }
    EXPECT_EQ(nodes["bounce ring"], (std::set<std::uint32_t>{node}));
    EXPECT_EQ(nodes["gate scalars"], (std::set<std::uint32_t>{node}));
    EXPECT_EQ(nodes["gradient and weight staging"], (std::set<std::uint32_t>{0, 1}));
  }
}

struct Seen {
  std::uint64_t digest = 0;
  std::string description;
  std::map<std::uint32_t, double> master_shares;  ///< by node
  std::map<std::uint32_t, std::size_t> bytes;     ///< by node, of host memory
};

Seen train(const TinyOptions& options) {
  TinyTrainer trainer(options);
  trainer.start();
  trainer.run(kSteps);
  Seen seen;
  double all = 0.0;
  for (const LedgerEntry& entry : trainer.engine().ledger().entries) {
    if (entry.place == MemoryPlace::device) continue;
    seen.bytes[entry.node] += entry.bytes;
    if (entry.purpose.find("master") == std::string::npos) continue;
    seen.master_shares[entry.node] += static_cast<double>(entry.bytes);
    all += static_cast<double>(entry.bytes);
  }
  for (auto& [node, share] : seen.master_shares) share /= all;
  seen.description = trainer.engine().describe();
  seen.digest = trainer.engine().state_digest();
  return seen;
}

std::uint64_t digest_of_one_node() {
  return train(model("numa:1 core:2 pu:1", {1e9})).digest;
}

void expect_line(const std::string& text, const std::string& line) {
  EXPECT_NE(text.find(line), std::string::npos) << "no \"" << line << "\" in\n" << text;
}

/// One bucket of 62 is 1.6 % of the state.
constexpr double kBucketShare = 0.02;

TEST(NodeShares, GoByTheNodesRatesAndChangeNoBit) {
  const Seen seen = train(model("numa:2 core:2 pu:1", {3e8, 1e8}));
  EXPECT_NEAR(seen.master_shares.at(0), 0.75, kBucketShare);
  EXPECT_NEAR(seen.master_shares.at(1), 0.25, kBucketShare);
  expect_line(seen.description,
              "by update rates of the virtual clock, 300 + 100 million elements/s");
  EXPECT_EQ(seen.digest, digest_of_one_node());
}

TEST(NodeShares, AreStatedWithThreeDigits) {
  for (double rate = 1.1e8; rate < 9e8; rate += 0.9e8) {
    TinyTrainer trainer(model("numa:2 core:2 pu:1", {rate, 1e9 - rate}));
    trainer.start();
    const std::string text = trainer.engine().describe();
    const std::size_t at = text.find("nodes: ");
    ASSERT_NE(at, std::string::npos) << text;
    const std::string shares = text.substr(at, text.find(" of the host's", at) - at);
    EXPECT_LE(shares.size(), std::string("nodes: 0.0123 + 0.988").size()) << shares;
  }
}

TEST(NodeShares, GoByThreadsWhereNodesAreInstant) {
  const Seen seen = train(model("numa:2 core:2 pu:1", {0.0}));
  EXPECT_NEAR(seen.master_shares.at(0), 2.0 / 3.0, kBucketShare);  // a core is left to the trainer
  expect_line(seen.description, "of the host's state, by threads\n");
  EXPECT_EQ(seen.digest, digest_of_one_node());
}

/// 14 bytes an element are 14 MB, of which three quarters do not fit.
TEST(NodeShares, WhatANodeHasNoRoomForGoesToTheOthers) {
  const Seen seen = train(model("numa:2(memory=8MB) core:2 pu:1", {3e8, 1e8}));
  EXPECT_LE(seen.bytes.at(0), 8'000'000U);
  EXPECT_GE(seen.bytes.at(0), 7'000'000U);
  EXPECT_LE(seen.bytes.at(1), 8'000'000U);
  expect_line(seen.description, "node 0: less than its rate's share of the state");
  EXPECT_EQ(seen.description.find("node 1: less"), std::string::npos);
  EXPECT_EQ(seen.digest, digest_of_one_node());
}

/// What a later commit() has found of the nodes' memory goes with it.
TEST(NodeShares, ACommitThatFailsLeavesThemAsTheyWere) {
  TinyTrainer trainer(model("numa:2(memory=8MB) core:2 pu:1", {3e8, 1e8}));
  trainer.start_with(2);
  const std::string before = trainer.engine().describe();
  EXPECT_EQ(before.find("less than its rate's share"), std::string::npos) << before;
  void* const weight = trainer.gpu().allocate(std::size_t{2} << 20);
  trainer.gpu().synchronize();
  (void)trainer.engine().add_parameter({.name = "late",
                                        .dtype = DType::f16,
                                        .elems = std::size_t{1} << 20,
                                        .data = weight,
                                        .group = trainer.group(0)});
  // Nobody has written it, and what the software GPU allocates is not a number.
  expect_error(ErrorCode::invalid_argument, {"NaN", "'late'"}, [&] { trainer.engine().commit(); });
  EXPECT_EQ(trainer.engine().describe(), before);
}

TEST(NodeShares, AreNoLineForOneNode) {
  EXPECT_EQ(train(model("numa:1 core:2 pu:1", {1e9})).description.find("nodes:"),
            std::string::npos);
}

}  // namespace
}  // namespace outboard::testing
