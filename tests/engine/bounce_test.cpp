// SPDX-License-Identifier: Apache-2.0
// Too little pinned memory: the rest of the staging is pageable and reached through a pinned ring.
// The bits stay, nothing deadlocks, and the engine says once what it wanted and what it got.

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/trajectory.hpp"
#include "plan/model_layout.hpp"
#include "support/log_lines.hpp"

namespace outboard::testing {
namespace {

constexpr std::uint64_t kSteps = 4;
constexpr std::size_t kBuckets = 64;
constexpr std::size_t kBucketBytes = 8192;

/// 64 buckets of 8 KiB, one of them shared by small tensors and one tensor split over four.
TinyOptions many_buckets() {
  TinyOptions options;
  options.device.memory_bytes = std::size_t{8} << 20;
  options.config.max_grad_norm = 1.0;
  options.config.loss_scaling = {.initial_scale = 64.0, .growth_interval = 2};
  options.config.bucket_bytes = kBucketBytes;
  options.config.host.threads_per_node = 1;
  options.config.host.synthetic_topology = "numa:1 core:1 pu:1";
  options.groups = {AdamW{.lr = 1e-2, .weight_decay = 0.1}};
  std::vector<std::uint64_t> sizes(58, 4096);
  sizes[20] = 4 * 4096;
  sizes.insert(sizes.begin() + 30, {300, 5, 1000, 64});
  sizes.push_back(4000);
  sizes.push_back(4095);
  add_parameters(options, sizes);
  options.injected = {{.step = 1, .parameter = 40, .element = 17}};
  return options;
}

TinyOptions many_buckets_virtual(std::uint64_t seed) {
  TinyOptions options = many_buckets();
  options.device.mode = sim::Mode::virtual_time;
  options.device.seed = seed;
  options.device.rates.link_down_bytes_per_s = 1e9;
  options.device.rates.link_up_bytes_per_s = 1e9;
  options.device.rates.host_elems_per_s = {5e8};
  options.device.max_random_delay = std::chrono::microseconds(seed % 3 == 0 ? 0 : 100);
  options.device.stream_memory_ops = seed % 2 == 0;
  options.backward = std::chrono::microseconds(seed % 5);
  return options;
}

const Trajectory& reference() {
  static const Trajectory trajectory = [] {
    TinyOptions options = many_buckets_virtual(0);
    options.config.schedule = Schedule::serial;
    return run_trajectory(std::move(options), {.steps = kSteps});
  }();
  return trajectory;
}

plan::ModelLayout layout_of(const TinyOptions& options) {
  std::vector<plan::ParameterShape> shapes;
  for (const TinyParameter& parameter : options.parameters) {
    shapes.push_back({parameter.elems, parameter.dtype});
  }
  const std::array<double, 1> one_node = {1.0};
  return plan::make_layout(shapes, options.config.bucket_bytes, one_node);
}

TEST(Bounce, TheModelHasTheBucketsItIsMadeFor) {
  const TinyOptions options = many_buckets_virtual(0);
  EXPECT_EQ(layout_of(options).buckets.size(), kBuckets);
  TinyTrainer trainer(options);
  trainer.start();
  trainer.step();
  EXPECT_EQ(trainer.engine().stats().bounce_bytes, 0u) << "all pinned: nothing to bounce";
  EXPECT_TRUE(reference()[1].skipped);
}

TEST(Bounce, TwoOrOnePinnedSlotsForSixtyFourBuckets) {
  for (std::uint64_t seed = 1; seed <= 120 && !HasFailure(); ++seed) {
    TinyOptions options = many_buckets_virtual(seed);
    options.config.pinned_slots = static_cast<std::uint32_t>(1 + seed % 2);
    options.config.check_waits = seed % 7 == 0;
    options.second_stream = seed % 4 < 2;
    if (seed % 6 == 0) options.config.schedule = Schedule::serial;
    TinyTrainer trainer(std::move(options));
    trainer.start();
    const std::uint64_t digests = mix_bits(seed, 3, 3);
    EXPECT_EQ(first_difference(reference(), run_trajectory(trainer, {kSteps, digests})), "")
        << "seed " << seed;
    EXPECT_GT(trainer.engine().stats().bounce_bytes, 0u);
  }
}

TEST(Bounce, GradientBuffersAreTakenThroughTheRing) {
  for (std::uint64_t seed = 1; seed <= 60 && !HasFailure(); ++seed) {
    TinyOptions options = many_buckets_virtual(seed);
    options.config.pinned_slots = static_cast<std::uint32_t>(1 + seed % 3);
    options.gradient_ring = static_cast<std::uint32_t>(1 + seed % 2);
    options.second_stream = seed % 4 < 2;
    EXPECT_EQ(first_difference(reference(), run_trajectory(std::move(options), {kSteps, 0})), "")
        << "seed " << seed;
  }
}

TEST(Bounce, OnThreads) {
  for (std::uint32_t repetition = 0; repetition < 10 && !HasFailure(); ++repetition) {
    TinyOptions options = many_buckets();
    options.config.pinned_slots = 1 + repetition % 3;
    options.config.host.threads_per_node = 1 + repetition % 2;
    options.device.stream_memory_ops = repetition % 4 < 2;
    options.gradient_ring = repetition % 3;
    EXPECT_EQ(first_difference(reference(), run_trajectory(std::move(options), {kSteps, 0})), "")
        << "repetition " << repetition;
  }
}

/// discard() drops the gradients given since step(), not those that step() is still working on.
TEST(Bounce, DiscardLeavesTheStepBeforeAlone) {
  TinyOptions options = many_buckets_virtual(3);
  options.injected.clear();
  options.digest = false;
  const auto run = [](TinyOptions given, bool discard) {
    TinyTrainer trainer(std::move(given));
    trainer.start();
    for (int step = 0; step < 3; ++step) {
      trainer.step();
      if (!discard) continue;
      // The last bucket's gradient arrived first: others still wait for the ring.
      trainer.engine().wait(trainer.id(63), trainer.reader());
      trainer.engine().gradient_ready(trainer.id(63), trainer.gradient(0), trainer.reader());
      trainer.engine().discard();
    }
    return trainer.engine().state_digest();
  };
  const std::uint64_t expected = run(options, false);
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    options.device.seed = seed;
    options.device.rates.link_down_bytes_per_s = seed % 2 == 0 ? 1e7 : 1e8;
    options.config.pinned_slots = static_cast<std::uint32_t>(1 + seed % 3);
    EXPECT_EQ(run(options, true), expected) << "seed " << seed;
  }
}

/// What warnings of too little pinned memory hold.
const std::string kPinned = "pinned host memory";

struct Refused {
  std::size_t limit_bytes = 0;
  bool threads = false;
};

void run_refused(const Refused& refused) {
  SCOPED_TRACE("limit " + std::to_string(refused.limit_bytes));
  LogLines log;
  TinyOptions options = refused.threads ? many_buckets() : many_buckets_virtual(9);
  options.device.pinned_limit_bytes = refused.limit_bytes;
  options.config.log = log.sink();
  TinyTrainer trainer(std::move(options));
  trainer.start();
  EXPECT_EQ(first_difference(reference(), run_trajectory(trainer, {kSteps, 0})), "");
  EXPECT_GT(trainer.engine().stats().bounce_bytes, 0u);
  const std::vector<std::string> warnings = log.warning_lines({kPinned});
  ASSERT_EQ(warnings.size(), 1u);
  std::printf("%s\n", warnings[0].c_str());
  // Wanted: a slot for each bucket. Obtained: what the ledger lists as pinned staging.
  std::size_t obtained = 0;
  for (const LedgerEntry& entry : trainer.engine().ledger().entries) {
    if (entry.place == MemoryPlace::host_pinned && entry.purpose != "gate scalars") {
      obtained += entry.bytes;
    }
  }
  std::size_t wanted = 0;
  for (const plan::Bucket& bucket : layout_of(trainer.options()).buckets) {
    wanted += static_cast<std::size_t>(bucket.padded_elems) * 2;
  }
  EXPECT_LE(obtained, refused.limit_bytes);
  EXPECT_NE(warnings[0].find(" " + std::to_string(wanted) + " bytes"), std::string::npos);
  EXPECT_NE(warnings[0].find(" " + std::to_string(obtained) + " are pinned"), std::string::npos);
}

TEST(Bounce, RefusedPinningWarnsOnceAndKeepsTheBits) {
  for (const bool threads : {false, true}) {
    for (const std::size_t buckets : {0u, 1u, 5u, 40u}) {
      run_refused({.limit_bytes = buckets * kBucketBytes + buckets * 64, .threads = threads});
    }
  }
}

TEST(Bounce, EnoughPinnedMemoryWarnsOfNothing) {
  LogLines log;
  TinyOptions options = many_buckets_virtual(1);
  options.config.log = log.sink();
  run_trajectory(std::move(options), {.steps = 1});
  EXPECT_TRUE(log.warning_lines({kPinned}).empty());
}

}  // namespace
}  // namespace outboard::testing
