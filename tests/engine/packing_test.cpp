// SPDX-License-Identifier: Apache-2.0
/// Small tensors cross the link together: how many copies, how many bytes, how much memory, and
/// that nobody waits for anybody else's gradient.
///
/// OUTBOARD_TEST_SEED=<n> replays one drawn model alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "core/pack_layout.hpp"
#include "engine/drawn_options.hpp"
#include "engine/splits.hpp"
#include "engine/trajectory.hpp"
#include "support/manual_trainer.hpp"
#include "support/seeds.hpp"

namespace outboard::testing {
namespace {

constexpr std::size_t kKiB = 1024;

TinyOptions model_of(const std::vector<std::uint64_t>& sizes, std::size_t bucket_bytes) {
  TinyOptions options;
  options.device = virtual_device();
  options.device.memory_bytes = std::size_t{64} << 20;
  options.config.bucket_bytes = bucket_bytes;
  options.config.max_grad_norm = 1.0;
  options.config.loss_scaling = {.dynamic = false, .initial_scale = 1.0};
  options.digest = false;
  options.max_steps = 16;
  add_parameters(options, sizes);
  return options;
}

std::uint64_t elements_of(const TinyOptions& options) {
  std::uint64_t elems = 0;
  for (const TinyParameter& parameter : options.parameters) elems += parameter.elems;
  return elems;
}

plan::ModelLayout layout_of(const TinyOptions& options) {
  std::vector<plan::ParameterShape> shapes;
  for (const TinyParameter& parameter : options.parameters) {
    shapes.push_back({parameter.elems, parameter.dtype});
  }
  return plan::make_layout(shapes, options.config.bucket_bytes, std::vector<double>{1.0});
}

/// Copies one way for a step in which all gradients come.
std::uint64_t copies_of(const TinyOptions& options) {
  std::uint64_t copies = 0;
  for (const plan::Bucket& bucket : layout_of(options).buckets) {
    copies += bucket.segments - bucket.packed_segments + (bucket.packed_segments > 0 ? 1 : 0);
  }
  return copies;
}

sim::Duration step_time(TinyTrainer& trainer, std::uint64_t steps) {
  const sim::Duration from = trainer.gpu().now();
  trainer.run(steps);
  trainer.engine().synchronize();
  return trainer.gpu().now() - from;
}

// --- how many -----------------------------------------------------------------------------------

TEST(Packing, TenThousandTensorsOfTenElementsAreAFewCopies) {
  constexpr std::uint64_t kSteps = 3;
  for (const std::size_t bucket : {8 * kKiB, 64 * kKiB, 4096 * kKiB}) {
    SCOPED_TRACE("bucket bytes " + std::to_string(bucket));
    const std::uint64_t bytes = 200'000;
    TinyOptions many = model_of(std::vector<std::uint64_t>(10'000, 10), bucket);
    TinyOptions one = model_of({100'000}, bucket);
    for (TinyOptions* options : {&many, &one}) {
      options->device.rates.copy_latency = sim::Duration(10'000);
      options->device.rates.link_down_bytes_per_s = 25e9;
      options->device.rates.link_up_bytes_per_s = 25e9;
      options->device.rates.device_bytes_per_s = 1e12;
      options->device.rates.host_elems_per_s = {1e9};
    }
    TinyTrainer trainer(many);
    TinyTrainer reference(one);
    trainer.start();
    reference.start();
    const sim::Duration took = step_time(trainer, kSteps);
    const sim::Duration alone = step_time(reference, kSteps);
    const StepStats stats = trainer.engine().stats();
    const std::uint64_t most = (bytes + bucket - 1) / bucket + 1;
    EXPECT_LE(stats.copies_down, kSteps * most);
    EXPECT_LE(stats.copies_up, kSteps * most);
    EXPECT_EQ(stats.gradient_bytes_down, kSteps * bytes) << "padding crossed the link";
    EXPECT_EQ(stats.weight_bytes_up, kSteps * bytes);
    EXPECT_LE(stats.host_device_syncs, 4 * kSteps);
    EXPECT_LE(took.count(), 3 * alone.count());
    std::printf("buckets of %zu KiB: %llu copies down, step / step of one tensor %.3f\n",
                bucket / kKiB, static_cast<unsigned long long>(stats.copies_down / kSteps),
                static_cast<double>(took.count()) / static_cast<double>(alone.count()));
  }
}

TEST(Packing, BeginsBelow64KiB) {
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32}) {
    const std::uint64_t border = 64 * kKiB / dtype_bytes(dtype);
    TinyOptions options =
        model_of({border - 1, border, 7, border + 1, border - 1, 3 * border}, 4096 * kKiB);
    for (TinyParameter& parameter : options.parameters) parameter.dtype = dtype;
    TinyTrainer trainer(options);
    trainer.start();
    trainer.run(2);
    trainer.engine().synchronize();
    const StepStats stats = trainer.engine().stats();
    EXPECT_EQ(stats.copies_down, 2U * 4) << "three large ones, and the rest together";
    EXPECT_EQ(stats.copies_up, 2U * 4);
    EXPECT_EQ(stats.gradient_bytes_down, 2 * elements_of(options) * dtype_bytes(dtype));
  }
}

TEST(Packing, WhatIsAloneInItsBucketGoesByItself) {
  TinyTrainer trainer(model_of({40'000, 10}, 4096 * kKiB));
  trainer.start();
  trainer.run(1);
  for (const LedgerEntry& entry : trainer.engine().ledger().entries) {
    EXPECT_NE(entry.purpose, "packed small tensors");
  }
  EXPECT_EQ(trainer.engine().stats().copies_down, 2U);
}

// --- how much memory ----------------------------------------------------------------------------

std::vector<std::size_t> packing_bytes(TinyTrainer& trainer) {
  std::vector<std::size_t> bytes;
  for (const LedgerEntry& entry : trainer.engine().ledger().entries) {
    if (entry.purpose == "packed small tensors") bytes.push_back(entry.bytes);
  }
  return bytes;
}

TEST(Packing, HoldsAFewBuffersHoweverManyBuckets) {
  // 4,000 elements of two tensors fill a bucket of 4,096.
  for (const std::size_t buckets : {1U, 2U, 3U, 30U}) {
    const std::vector<std::uint64_t> sizes(2 * buckets, 2'000);
    TinyTrainer trainer(model_of(sizes, 8 * kKiB));
    trainer.start();
    const std::size_t buffers =
        std::min<std::size_t>(buckets, 8) + std::min<std::size_t>(buckets, 2);
    const std::vector<std::size_t> expected = {buffers * 8'192, 24 * sizes.size()};
    EXPECT_EQ(packing_bytes(trainer), expected) << buckets << " buckets";
    const std::size_t used = trainer.gpu().memory().used_bytes;
    trainer.run(3);
    EXPECT_EQ(trainer.gpu().memory().used_bytes, used);
    EXPECT_EQ(trainer.engine().stats().copies_down, 3 * buckets);
  }
}

// --- gradients that come late, or not at all ----------------------------------------------------

/// Buckets of two tensors each, on a trainer that gives gradients in any order.
struct Pairs {
  explicit Pairs(std::size_t buckets, Schedule schedule = Schedule::exact,
                 std::optional<std::uint32_t> pinned_slots = std::nullopt) {
    Config config;
    config.bucket_bytes = 8 * kKiB;
    config.schedule = schedule;
    config.pinned_slots = pinned_slots;
    config.loss_scaling = {.dynamic = false, .initial_scale = 1.0};
    trainer.emplace(config);
    const GroupId group = trainer->engine->add_group(AdamW{.lr = 1e-2});
    for (std::size_t i = 0; i < 2 * buckets; ++i) {
      ids.push_back(trainer->add("w" + std::to_string(i), values(i), group));
    }
    trainer->engine->commit();
  }
  static std::vector<float> values(std::size_t salt) {
    std::vector<float> out(2'000);
    for (std::size_t e = 0; e < out.size(); ++e) out[e] = mixed_unit(salt, e, 3);
    return out;
  }
  void give(std::size_t i) { trainer->give(ids.at(i), values(i + 100)); }
  [[nodiscard]] std::vector<ManualTrainer::State> states() {
    std::vector<ManualTrainer::State> out;
    for (const ParameterId id : ids) out.push_back(trainer->state(id));
    return out;
  }
  [[nodiscard]] StepStats stats() const { return trainer->engine->stats(); }

  std::optional<ManualTrainer> trainer;
  std::vector<ParameterId> ids;
};

TEST(Packing, ABucketThatFindsNoBufferGoesByItself) {
  constexpr std::size_t kBuckets = 11;
  for (const Schedule schedule : {Schedule::exact, Schedule::open, Schedule::serial}) {
    Pairs pairs(kBuckets, schedule);
    Pairs unpacked(kBuckets, schedule, 1);
    for (Pairs* each : {&pairs, &unpacked}) {
      for (int step = 0; step < 2; ++step) {
        each->trainer->wait_all();
        // The first of every bucket, then the second ones: no bucket is complete until then.
        for (std::size_t i = 0; i < 2 * kBuckets; i += 2) each->give(i);
        for (std::size_t i = 1; i < 2 * kBuckets; i += 2) each->give(i);
        EXPECT_TRUE(each->trainer->engine->step().applied());
      }
    }
    EXPECT_EQ(pairs.states(), unpacked.states());
    EXPECT_EQ(pairs.stats().copies_down,
              2 * (core::kPackBuffers + (kBuckets - core::kPackBuffers) * 2));
    EXPECT_EQ(pairs.stats().copies_up, 2 * kBuckets) << "weights have buffers of their own";
  }
}

/// Far more buckets than buffers, and a link so slow that all of backward is there before the first
/// copy has passed.
TEST(Packing, ABufferIsFilledAgainWhenItsCopyHasPassed) {
  TinyOptions options = model_of(std::vector<std::uint64_t>(60, 2'000), 8 * kKiB);
  options.device.rates.link_down_bytes_per_s = 1e6;
  options.device.rates.link_up_bytes_per_s = 1e6;
  TinyOptions ring = options;
  ring.config.pinned_slots = 1;
  TinyTrainer packed(options);
  packed.start();
  EXPECT_EQ(first_difference(run_trajectory(ring, {.steps = 4}),
                             run_trajectory(packed, {.steps = 4, .digests = 0})),
            "");
  EXPECT_EQ(packed.engine().stats().copies_down, 4U * 30);
}

TEST(Packing, AGradientIsTakenBeforeTheRestOfItsBucketComes) {
  Pairs pairs(1);
  pairs.trainer->wait_all();
  pairs.give(0);
  pairs.trainer->engine->wait_gradient_taken(pairs.ids[0], pairs.trainer->stream);
  pairs.trainer->gpu.synchronize(pairs.trainer->stream);  // a deadlock of virtual time would throw
  EXPECT_EQ(pairs.stats().copies_down, 0U);
  pairs.give(1);
  EXPECT_EQ(pairs.stats().copies_down, 1U) << "complete: it leaves before step()";
  EXPECT_TRUE(pairs.trainer->engine->step().applied());
}

TEST(Packing, WhatDidNotComeIsNotWaitedFor) {
  for (const Schedule schedule : {Schedule::exact, Schedule::open, Schedule::blocking}) {
    Pairs pairs(3, schedule);
    Pairs unpacked(3, schedule, 1);
    for (Pairs* each : {&pairs, &unpacked}) {
      for (const std::vector<std::size_t>& given : std::vector<std::vector<std::size_t>>{
               {0, 1, 3, 4, 5}, {2}, {0, 1, 2, 3, 4, 5}, {5, 0}}) {
        each->trainer->wait_all();
        for (const std::size_t i : given) each->give(i);
        EXPECT_TRUE(each->trainer->engine->step().applied());
      }
    }
    EXPECT_EQ(pairs.states(), unpacked.states());
    EXPECT_EQ(pairs.stats().copies_down, 3U + 1 + 3 + 2) << "one for each bucket with a gradient";
    // By themselves where not all of a bucket take part: buckets 1, 1, and twice one of two.
    EXPECT_EQ(pairs.stats().copies_up, 3U + 1 + 3 + 2);
    EXPECT_EQ(pairs.stats().gradient_bytes_down, (5U + 1 + 6 + 2) * 4'000);
    EXPECT_EQ(pairs.stats().weight_bytes_up, (5U + 1 + 6 + 2) * 4'000);
  }
}

/// Three tensors in each of two buckets, and a host so slow that an update lasts into the next
/// step.
std::vector<ManualTrainer::State> around_an_update(std::optional<std::uint32_t> pinned_slots,
                                                   bool flags) {
  Config config;
  config.bucket_bytes = 8 * kKiB;
  config.schedule = Schedule::open;
  config.pinned_slots = pinned_slots;
  config.loss_scaling = {.dynamic = false, .initial_scale = 1.0};
  sim::Options device = virtual_device();
  device.rates.host_elems_per_s = {1e3};
  device.stream_memory_ops = flags;
  ManualTrainer trainer(config, device);
  const GroupId group = trainer.engine->add_group(AdamW{.lr = 1e-2});
  const auto values = [](std::size_t salt) {
    std::vector<float> out(1'300);
    for (std::size_t e = 0; e < out.size(); ++e) out[e] = mixed_unit(salt, e, 4);
    return out;
  };
  std::vector<ParameterId> ids;
  for (std::size_t i = 0; i < 6; ++i) {
    ids.push_back(trainer.add("w" + std::to_string(i), values(i), group));
  }
  trainer.engine->commit();
  // The middle one is still being updated when those around it come, which wait for nothing.
  trainer.give(ids[1], values(11));
  EXPECT_TRUE(trainer.engine->step().applied());
  trainer.give(ids[0], values(12));
  trainer.give(ids[2], values(13));
  EXPECT_TRUE(trainer.engine->step().applied());
  std::vector<ManualTrainer::State> states;
  for (const ParameterId id : ids) states.push_back(trainer.state(id));
  return states;
}

TEST(Packing, LeavesAloneWhatAnUpdateStillUses) {
  for (const bool flags : {false, true}) {
    EXPECT_EQ(around_an_update(std::nullopt, flags), around_an_update(1, flags));
  }
}

TEST(Packing, ALaterCommitPacksWhatItBrings) {
  Pairs pairs(2);
  Pairs unpacked(2, Schedule::exact, 1);
  for (Pairs* each : {&pairs, &unpacked}) {
    ManualTrainer& trainer = *each->trainer;
    const GroupId group = trainer.engine->add_group(AdamW{.lr = 1e-3});
    for (int round = 0; round < 2; ++round) {
      trainer.wait_all();
      for (std::size_t i = 0; i < each->ids.size(); ++i) each->give(i);
      EXPECT_TRUE(trainer.engine->step().applied());
      if (round > 0) continue;
      for (std::size_t i = 4; i < 10; ++i) {
        each->ids.push_back(trainer.add("w" + std::to_string(i), Pairs::values(i), group));
      }
      trainer.engine->commit();
    }
  }
  EXPECT_EQ(pairs.states(), unpacked.states());
  EXPECT_EQ(pairs.stats().copies_down, 2U + 5) << "one for each bucket";
  EXPECT_EQ(pairs.stats().copies_up, 2U + 5);
}

TEST(Packing, DiscardForgetsWhatIsPacked) {
  Pairs pairs(6);
  Pairs never(6);
  pairs.trainer->wait_all();
  never.trainer->wait_all();
  // More incomplete buckets than there are buffers, if discard() kept them.
  for (int round = 0; round < 2; ++round) {
    for (std::size_t i = 0; i < 12; i += 2) pairs.give(i);
    pairs.trainer->engine->discard();
  }
  EXPECT_EQ(pairs.stats().copies_down, 0U);
  for (Pairs* each : {&pairs, &never}) {
    for (std::size_t i = 0; i < 12; ++i) each->give(i);
    EXPECT_TRUE(each->trainer->engine->step().applied());
  }
  EXPECT_EQ(pairs.stats().copies_down, 6U);
  EXPECT_EQ(pairs.states(), never.states());
}

TEST(Packing, AnEngineMayGoWithGradientsPacked) {
  Pairs pairs(2);
  pairs.trainer->wait_all();
  pairs.give(0);
  pairs.give(2);
  pairs.give(3);
  sim::Gpu gpu = pairs.trainer->gpu;
  const std::uint64_t buffers = gpu.counters().live_allocations;
  pairs.trainer->engine.reset();
  EXPECT_LT(gpu.counters().live_allocations, buffers);
}

TEST(Packing, FollowsStateThatMoves) {
  TinyOptions options = model_of({2'000, 2'000, 9'000, 100, 50, 3'000, 3'000}, 16 * kKiB);
  options.config.keep_host_room = true;
  TinyTrainer trainer(options);
  trainer.start();
  TinyOptions direct = options;
  direct.config.pinned_slots = 1;
  TinyTrainer unpacked(direct);
  unpacked.start();
  const auto step = [&](PlacementChange change) {
    for (TinyTrainer* each : {&trainer, &unpacked}) {
      each->engine().set_placement(change);
      each->run(2);
    }
    EXPECT_EQ(trainer.engine().state_digest(), unpacked.engine().state_digest());
  };
  step({.placement = Placement::host});
  const std::uint64_t on_host = trainer.engine().stats().copies_down;
  EXPECT_EQ(on_host, 2 * copies_of(options));
  step({.placement = Placement::device_resident});
  EXPECT_EQ(trainer.engine().stats().copies_down, on_host) << "resident gradients stay";
  step({.placement = Placement::host});
  EXPECT_EQ(trainer.engine().stats().copies_down, 2 * on_host);
}

// --- same bits ----------------------------------------------------------------------------------

constexpr std::uint64_t kSeeds = 150;
constexpr std::uint64_t kSteps = 4;

/// Many tiny tensors, a few large ones; some gradients do not come, one overflows.
TinyOptions draw_model(std::uint64_t seed) {
  Draw draw(seed * 77 + 5);
  TinyOptions options = small_model();
  options.parameters.clear();
  std::vector<std::uint64_t> sizes(5 + draw.below(60));
  for (std::uint64_t& elems : sizes) {
    const std::array<std::uint64_t, 5> limits = {12, 12, 300, 4'000, 40'000};
    elems = 1 + draw.below(limits.at(draw.below(draw.below(4) == 0 ? 5 : 4)));
  }
  add_parameters(options, sizes);
  options.injected = {{.step = 2, .parameter = 1, .element = 0, .bits = 0xFE00}};
  const std::uint64_t gaps = draw.below(3);
  options.has_gradient = [seed, gaps](std::uint64_t step, std::uint32_t i) {
    return i == 1 || gaps == 0 || mix_bits(seed, step, i) % (gaps == 1 ? 20 : 3) != 0;
  };
  return options;
}

TinyOptions draw_way(std::uint64_t seed) {
  Draw draw(seed);
  TinyOptions options = draw_model(seed);
  options.device.seed = seed;
  draw_device(draw, options.device);
  draw_config(draw, options.config);
  options.config.accumulate = Accumulate::trainer;
  if (options.config.placement == Placement::fraction) options.config.placement = Placement::host;
  options.config.device_fraction = 0.0;
  const std::array<Schedule, 3> schedules = {Schedule::serial, Schedule::blocking, Schedule::exact};
  options.config.schedule = schedules.at(draw.below(schedules.size()));
  draw_trainer(draw, options);
  return options;
}

/// `copies` and `gradients` grow by those of an engine that packs.
void expect_same(std::uint64_t seed, std::uint64_t& copies, std::uint64_t& gradients) {
  TinyOptions plain = draw_model(seed);
  plain.config.schedule = Schedule::serial;
  plain.config.pinned_slots = 1;  // through the ring, one by one
  const Trajectory reference = run_trajectory(plain, {.steps = kSteps});
  const TinyOptions options = draw_way(seed);
  TinyTrainer trainer(options);
  trainer.start();
  const Trajectory seen =
      run_trajectory(trainer, {.steps = kSteps, .digests = mix_bits(seed, 0, 1)});
  EXPECT_EQ(first_difference(reference, seen), "")
      << "seed " << seed << ": " << describe(options) << "\nreplay: OUTBOARD_TEST_SEED=" << seed
      << " engine_packing_test";
  if (packing_bytes(trainer).empty()) return;
  copies += trainer.engine().stats().copies_down;
  for (std::uint64_t s = 0; s < kSteps; ++s) {
    for (std::uint32_t i = 0; i < options.parameters.size(); ++i) {
      gradients += options.has_gradient(s, i) ? 1 : 0;
    }
  }
}

TEST(PackingSeeds, DrawnModelsOfTinyTensorsKeepTheirBits) {
  std::uint64_t copies = 0;
  std::uint64_t gradients = 0;
  const bool all =
      for_each_seed(kSeeds, [&](std::uint64_t seed) { expect_same(seed, copies, gradients); });
  if (!all) return;
  EXPECT_GT(copies, 0U);
  EXPECT_LT(2 * copies, gradients) << "hardly anything was packed";
}

}  // namespace
}  // namespace outboard::testing
