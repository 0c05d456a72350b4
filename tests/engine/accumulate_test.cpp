// SPDX-License-Identifier: Apache-2.0
// Accumulate::host: the engine adds up the micro-batches' gradients in FP32.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "engine/splits.hpp"
#include "engine/trajectory.hpp"
#include "simd/target.hpp"
#include "support/expect_error.hpp"
#include "support/manual_trainer.hpp"

namespace outboard::testing {
namespace {

Config plain(Placement placement, std::uint32_t accumulation) {
  Config config;
  config.accumulate = Accumulate::host;
  config.accumulation = accumulation;
  config.placement = placement;
  config.loss_scaling = {.dynamic = false, .initial_scale = 1.0};
  return config;
}

class HostAccumulation : public ::testing::TestWithParam<Placement> {};
INSTANTIATE_TEST_SUITE_P(Placements, HostAccumulation,
                         ::testing::Values(Placement::host, Placement::device_resident));

TEST_P(HostAccumulation, MeanOfMicroBatchesWhateverTheirNumber) {
  ManualTrainer trainer(plain(GetParam(), 4));
  const GroupId group = trainer.engine->add_group({.lr = 0.1});
  const ParameterId p = trainer.add("p", {1.0F}, group);
  trainer.engine->commit();
  const StepResult first = trainer.step({{p, {1}}, {p, {2}}, {p, {3}}, {p, {4}}});
  EXPECT_DOUBLE_EQ(first.grad_norm, 2.5);
  trainer.engine->set_accumulation(2);  // the last, shorter step of an epoch
  const StepResult second = trainer.step({{p, {-1}}, {p, {-1}}});
  EXPECT_DOUBLE_EQ(second.grad_norm, 1.0);
  const auto state = trainer.state(p);
  EXPECT_NEAR(state.p[0], 0.8654394, 1e-6);
  EXPECT_NEAR(state.m[0], 0.125, 1e-7);
  EXPECT_NEAR(state.v[0], 0.00724375, 1e-8);
}

TEST_P(HostAccumulation, SumWhereTheDivisorIsOne) {
  ManualTrainer trainer(plain(GetParam(), 1));
  const GroupId group = trainer.engine->add_group({.lr = 0.1});
  const ParameterId p = trainer.add("p", {1.0F}, group);
  trainer.engine->commit();
  const StepResult first = trainer.step({{p, {1}}, {p, {2}}, {p, {3}}, {p, {4}}});
  EXPECT_DOUBLE_EQ(first.grad_norm, 10.0);
  trainer.step({{p, {-1}}, {p, {-1}}});
  const auto state = trainer.state(p);
  EXPECT_NEAR(state.p[0], 0.8488974, 1e-6);
  EXPECT_NEAR(state.m[0], 0.7, 1e-6);
  EXPECT_NEAR(state.v[0], 0.1039, 1e-7);
}

TEST_P(HostAccumulation, AddsInFp32InTheOrderOfTheCalls) {
  ManualTrainer trainer(plain(GetParam(), 1));
  const GroupId group = trainer.engine->add_group({.lr = 0.1, .beta1 = 0.0});
  const ParameterId p = trainer.add("p", {1.0F, 1.0F}, group);
  trainer.engine->commit();
  const float tiny = 0x1p-24F;  // the smallest half; half an ulp of 1 in FP32
  trainer.step({{p, {1.0F, tiny}}, {p, {tiny, tiny}}, {p, {tiny, 1.0F}}});
  const auto state = trainer.state(p);
  EXPECT_EQ(state.m[0], 1.0F);             // (1 + 2^-24) + 2^-24, rounded to even twice
  EXPECT_EQ(state.m[1], 1.0F + 0x1p-23F);  // (2^-24 + 2^-24) + 1
}

TEST_P(HostAccumulation, AnInfInOneMicroBatchSkipsTheWholeStep) {
  Config config = plain(GetParam(), 3);
  config.loss_scaling = {.initial_scale = 1024.0};
  ManualTrainer trainer(config);
  const GroupId group = trainer.engine->add_group({.lr = 0.1});
  const ParameterId p = trainer.add("p", std::vector<float>(9000, 1.0F), group);
  const ParameterId q = trainer.add("q", {1.0F}, group);
  trainer.engine->commit();
  std::vector<float> good(9000, 0.5F), bad = good;
  bad[8191] = std::numeric_limits<float>::infinity();
  bad[8192] = std::numeric_limits<float>::quiet_NaN();
  const std::uint64_t before = trainer.engine->state_digest();
  const StepResult result =
      trainer.step({{p, good}, {q, {1}}, {p, bad}, {q, {1}}, {p, good}, {q, {1}}});
  ASSERT_TRUE(result.skipped());
  ASSERT_TRUE(result.non_finite);
  EXPECT_EQ(result.non_finite->name, "p");
  EXPECT_EQ(result.non_finite->element, 8191U);
  EXPECT_EQ(result.non_finite->count, 2U);
  EXPECT_FALSE(result.non_finite->is_nan);
  EXPECT_EQ(trainer.engine->loss_scale(), 512.0);
  EXPECT_NE(trainer.engine->state_digest(), before);  // the loss scale is part of it
  EXPECT_EQ(trainer.engine->step_count(p), 0U);
  // The next step starts from new sums.
  const StepResult next = trainer.step({{q, {512}}, {q, {512}}, {q, {512}}});
  EXPECT_DOUBLE_EQ(next.grad_norm, 1.0);
}

TEST_P(HostAccumulation, DiscardStartsNewSums) {
  ManualTrainer trainer(plain(GetParam(), 2));
  const GroupId group = trainer.engine->add_group({.lr = 0.1, .beta1 = 0.0});
  const ParameterId p = trainer.add("p", {1.0F}, group);
  trainer.engine->commit();
  trainer.give(p, {100});
  trainer.engine->discard();
  trainer.step({{p, {1}}, {p, {2}}});
  EXPECT_EQ(trainer.state(p).m[0], 1.5F);
}

TEST_P(HostAccumulation, AParameterMayMissMicroBatches) {
  ManualTrainer trainer(plain(GetParam(), 2));
  const GroupId group = trainer.engine->add_group({.lr = 0.1, .beta1 = 0.0});
  const ParameterId p = trainer.add("p", std::vector<float>(5000, 1.0F), group);
  const ParameterId q = trainer.add("q", {1.0F}, group);
  const ParameterId none = trainer.add("none", {1.0F}, group);
  trainer.engine->commit();
  const std::vector<float> ones(5000, 1.0F);
  const StepResult result = trainer.step({{p, ones}, {q, {3}}, {q, {5}}});
  EXPECT_DOUBLE_EQ(result.grad_norm, std::sqrt(5000.0 * 0.25 + 16.0));
  EXPECT_EQ(trainer.state(p).m[4999], 0.5F);
  EXPECT_EQ(trainer.state(q).m[0], 4.0F);
  EXPECT_EQ(trainer.engine->step_count(none), 0U);
}

TEST(HostAccumulationProtocol, TheDivisorChangesBetweenStepsOnly) {
  ManualTrainer trainer(plain(Placement::host, 2));
  const GroupId group = trainer.engine->add_group({.lr = 0.1});
  const ParameterId p = trainer.add("p", {1.0F}, group);
  trainer.engine->commit();
  trainer.give(p, {1});
  expect_error(ErrorCode::protocol_error, {"set_accumulation", "discard"},
               [&] { trainer.engine->set_accumulation(3); });
  expect_error(ErrorCode::invalid_argument, {"set_accumulation", "at least 1"},
               [&] { trainer.engine->set_accumulation(0); });
}

// --- the same bits ------------------------------------------------------------------------------

struct Variant {
  std::string name;
  sim::Options device = {};
  Config config = {};
  bool ring = false;  // two gradient buffers of a layer's size, used in turn
};

/// Three micro-batches a step, sizes that split and share buckets, an overflow in step 2.
std::uint64_t run(Variant variant) {
  constexpr std::uint64_t kSizes[] = {1, 4097, 100003, 7, 40000};
  variant.config.accumulate = Accumulate::host;
  if (variant.config.placement == Placement::fraction) {
    TinyOptions shape;
    shape.config = variant.config;
    add_parameters(shape, kSizes);
    const Split split = nearest_split(shape, variant.config.device_fraction);
    EXPECT_GT(split.host_elems, 0U);
    variant.config.device_fraction = split.fraction;
  }
  variant.config.accumulation = 3;
  variant.config.max_grad_norm = 1.0;
  variant.config.loss_scaling = {.initial_scale = 256.0, .growth_interval = 2};
  variant.device.memory_bytes = std::size_t{8} << 20;
  ManualTrainer trainer(variant.config, variant.device);
  const GroupId group = trainer.engine->add_group({.lr = 0.01, .weight_decay = 0.1});
  std::vector<ParameterId> ids;
  std::vector<DeviceBuffer> gradients;
  for (const std::uint64_t size : kSizes) {
    std::vector<float> initial(size);
    for (std::uint64_t i = 0; i < size; ++i) initial[i] = mixed_unit(99, ids.size(), i);
    ids.push_back(trainer.add("w" + std::to_string(ids.size()), initial, group));
    gradients.emplace_back(trainer.gpu, (variant.ring ? 100003 : size) * 2);
  }
  trainer.engine->commit();
  for (std::uint64_t step = 0; step < 5; ++step) {
    trainer.wait_all();
    for (std::uint64_t micro = 0; micro < 3; ++micro) {
      for (std::size_t i = ids.size(); i-- > 0;) {
        const std::uint64_t size = kSizes[i];
        const std::size_t buffer = variant.ring ? i % 2 : i;
        if (step + micro > 0 || (variant.ring && i + 2 < ids.size())) {
          const std::size_t held = variant.ring ? (i + 2 < ids.size() ? i + 2 : i % 2) : i;
          trainer.engine->wait_gradient_taken(ids[held], trainer.stream);
        }
        void* gradient = gradients[buffer].get();
        const void* weight = trainer.weight(ids[i]);
        const double scale = trainer.engine->loss_scale();
        const bool overflow = step == 2 && micro == 1 && i == 2;
        trainer.gpu.launch(trainer.stream, {}, [=](sim::KernelView& view) {
          const auto out = view.as<std::uint16_t>(gradient, size);
          const auto in = view.as<const std::uint16_t>(weight, size);
          for (std::uint64_t e = 0; e < size; ++e) {
            const float value = 0.5F * half_to_float(in[e]) + mixed_unit(step * 8 + micro, i, e);
            out[e] = half_from_float(value * static_cast<float>(scale));
          }
          if (overflow) out[77777] = 0x7C00;
        });
        trainer.engine->gradient_ready(ids[i], gradient, trainer.stream);
      }
    }
    EXPECT_EQ(trainer.engine->step().skipped(), step == 2);
  }
  trainer.wait_all();
  return trainer.engine->state_digest();
}

TEST(HostAccumulationBits, DoNotDependOnAnything) {
  std::vector<Variant> variants(13);
  variants[0].name = "host, threads";
  variants[1].name = "resident";
  variants[1].config.placement = Placement::device_resident;
  variants[2].name = "serial";
  variants[2].config.schedule = Schedule::serial;
  variants[3].name = "1 thread";
  variants[3].config.host.threads_per_node = 1;
  variants[4].name = "2 nodes";
  variants[4].config.host.synthetic_topology = "numa:2 core:1 pu:1";
  variants[5].name = "buckets of 8 KiB";
  variants[5].config.bucket_bytes = 8192;
  variants[6].name = "2 pinned slots, buckets of 64 KiB";
  variants[6].config.pinned_slots = 2;
  variants[6].config.bucket_bytes = 65536;
  variants[7].name = "no stream memory operations";
  variants[7].device.stream_memory_ops = false;
  variants[8].name = "virtual time";
  variants[8].device = virtual_device();
  variants[9].name = "two gradient buffers";
  variants[9].ring = true;
  variants[9].config.bucket_bytes = 65536;
  variants[10].name = "resident, two gradient buffers";
  variants[10].ring = true;
  variants[10].config.placement = Placement::device_resident;
  for (const std::size_t i : {11U, 12U}) {
    variants[i].name = i == 11 ? "a share resident" : "a share resident, virtual time, one slot";
    variants[i].config.placement = Placement::fraction;
    variants[i].config.bucket_bytes = 8192;
    variants[i].config.device_fraction = 0.7;
  }
  variants[12].device = virtual_device();
  variants[12].config.pinned_slots = 1;
  const std::uint64_t expected = run(variants[0]);
  for (const Variant& variant : variants) EXPECT_EQ(run(variant), expected) << variant.name;
  for (const std::string& target : simd::supported_targets()) {
    ASSERT_TRUE(simd::force_target(target));
    EXPECT_EQ(run(variants[0]), expected) << target;
  }
  ASSERT_TRUE(simd::force_target(""));
}

TEST(HostAccumulationBits, HoldOverSeeds) {
  Variant variant;
  const std::uint64_t expected = run(variant);
  for (std::uint64_t seed = 1; seed <= 24; ++seed) {
    variant.device = virtual_device();
    variant.device.seed = seed;
    variant.device.max_random_delay = std::chrono::milliseconds(5);
    variant.config.bucket_bytes = seed % 2 == 0 ? 8192 : 65536;
    variant.ring = seed % 3 == 0;
    if (seed % 4 == 0) variant.config.pinned_slots = 2;
    variant.config.placement = seed % 5 < 2 ? Placement::fraction : Placement::host;
    variant.config.device_fraction = seed % 5 < 2 ? 0.7 : 0.0;
    EXPECT_EQ(run(variant), expected) << "seed " << seed;
  }
}

}  // namespace
}  // namespace outboard::testing
