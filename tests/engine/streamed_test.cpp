// SPDX-License-Identifier: Apache-2.0
/// State that is streamed through the device: what it takes, what is sent when, what is refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/drawn_options.hpp"
#include "engine/splits.hpp"
#include "engine/trajectory.hpp"
#include "memory/lock_limit.hpp"
#include "outboard/planning.hpp"
#include "support/expect_error.hpp"
#include "support/log_lines.hpp"

namespace outboard::testing {
namespace {

constexpr std::size_t kBucketElems = 4096;
constexpr std::size_t kBucketState = 3 * sizeof(float) * kBucketElems;

/// Ten buckets of one parameter each.
TinyOptions ten_buckets() {
  TinyOptions options;
  options.device = virtual_device(3);
  options.config.loss_scaling.initial_scale = 64.0;
  options.config.bucket_bytes = 2 * kBucketElems;
  options.config.host.synthetic_topology = "numa:2 core:1 pu:1";
  options.config.placement = Placement::device_streamed;
  add_parameters(options, std::vector<std::uint64_t>(10, kBucketElems));
  options.digest = false;
  return options;
}

std::size_t bytes_of(const MemoryLedger& ledger, MemoryPlace place, const std::string& purpose) {
  std::size_t sum = 0;
  for (const LedgerEntry& entry : ledger.entries) {
    if (entry.place == place && entry.purpose == purpose) sum += entry.bytes;
  }
  return sum;
}

// --- memory --------------------------------------------------------------------------------------

TEST(Streamed, TakesTwoBucketsOfTheDeviceAndPinsItsState) {
  TinyOptions options = ten_buckets();
  TinyTrainer trainer(options);
  trainer.start();
  const MemoryLedger ledger = trainer.engine().ledger();
  EXPECT_EQ(bytes_of(ledger, MemoryPlace::device, "stream buffers"), 2 * kBucketState);
  EXPECT_EQ(bytes_of(ledger, MemoryPlace::device, "master weight"), 0U);
  EXPECT_GE(bytes_of(ledger, MemoryPlace::host_pinned, "master weight"), 10 * 4 * kBucketElems);
  EXPECT_EQ(bytes_of(ledger, MemoryPlace::host_pageable, "exp_avg"), 0U);
  std::vector<PlannedParameter> planned;
  for (const TinyParameter& parameter : options.parameters) planned.push_back({parameter.elems});
  const MemoryLedger plan = plan_memory(planned, 2, options.config);
  for (const MemoryPlace place :
       {MemoryPlace::host_pinned, MemoryPlace::host_pageable, MemoryPlace::device}) {
    EXPECT_EQ(plan.bytes(place), ledger.bytes(place)) << static_cast<int>(place);
  }
  EXPECT_EQ(bytes_of(plan, MemoryPlace::device, "stream buffers"), 2 * kBucketState);
  EXPECT_NE(trainer.engine().describe().find("10 buckets, all streamed through the device, in 2 "
                                             "buffers of " +
                                             std::to_string(kBucketState) + " bytes"),
            std::string::npos);
  EXPECT_EQ(trainer.engine().stats().device_fraction, 0.0);
}

TEST(Streamed, StaysWithinTheBudgetOrSaysHowMuchIsMissing) {
  TinyOptions options = ten_buckets();
  options.config.device_budget_bytes = 2 * kBucketState;
  EXPECT_EQ(run_trajectory(options, {.steps = 1}).size(), 1U);
  options.config.device_budget_bytes -= 1;
  TinyTrainer trainer(options);
  trainer.prepare();
  expect_error(ErrorCode::out_of_memory,
               {"streamed", std::to_string(2 * kBucketState), "device_budget_bytes",
                ": 1 bytes short", "bucket_bytes"},
               [&] { trainer.engine().commit(); });
}

TEST(Streamed, SumsOfGradientsOnTheDeviceCountTowardsTheBudget) {
  TinyOptions options = ten_buckets();
  options.config.accumulate = Accumulate::host;
  options.config.device_budget_bytes = 2 * kBucketState + 10 * 4 * kBucketElems;
  {
    TinyTrainer trainer(options);
    trainer.start();
    EXPECT_EQ(bytes_of(trainer.engine().ledger(), MemoryPlace::device, "gradient accumulator"),
              10 * 4 * kBucketElems);
    EXPECT_TRUE(trainer.step().result.applied());
  }
  options.config.device_budget_bytes -= 1;
  TinyTrainer trainer(options);
  trainer.prepare();
  expect_error(ErrorCode::out_of_memory, {"streamed", ": 1 bytes short"},
               [&] { trainer.engine().commit(); });
}

TEST(Streamed, FreeMemoryThatDoesNotHoldTheBuffersIsSaid) {
  const TinyOptions options = ten_buckets();
  TinyTrainer trainer(options);
  trainer.prepare();
  const sim::MemoryUse use = trainer.gpu().memory();
  const DeviceBuffer hog(trainer.gpu(), use.limit_bytes - use.used_bytes - kBucketState);
  const sim::Counters before = trainer.gpu().counters();
  expect_error(ErrorCode::out_of_memory, {"streamed", "are free", "short", "bucket_bytes"},
               [&] { trainer.engine().commit(); });
  EXPECT_EQ(trainer.gpu().counters().live_allocations, before.live_allocations);
  EXPECT_EQ(trainer.gpu().counters().live_registrations, before.live_registrations);
}

/// The state is 480 KiB, and a page for each of six arenas.
std::string refused_by() {
  const memory::LockUse use = memory::read_lock_use();
  const bool tight = use.limit && *use.limit < use.locked_bytes + (std::size_t{1} << 20);
  return tight ? "RLIMIT_MEMLOCK" : "the limit is the device's own";
}

TEST(Streamed, RefusedPinningIsOneWarningAndChangesNoBit) {
  TinyOptions options = ten_buckets();
  const Trajectory reference = run_trajectory(options, {.steps = 4});
  const LogLines log;
  options.config.log = log.sink();
  // Staging and scalars are pinned, and one stream of one node.
  options.device.pinned_limit_bytes = std::size_t{200} << 10;
  TinyTrainer trainer(options);
  trainer.start();
  const MemoryLedger ledger = trainer.engine().ledger();
  EXPECT_GT(bytes_of(ledger, MemoryPlace::host_pageable, "exp_avg_sq"), 0U);
  EXPECT_EQ(first_difference(reference, run_trajectory(trainer, {.steps = 4})), "");
  EXPECT_EQ(log.warnings({"streamed optimizer state", "pageable", refused_by()}), 1U);
}

TEST(Streamed, WhatALaterCommitCannotPinIsNotToldAgain) {
  TinyOptions options = ten_buckets();
  const LogLines log;
  options.config.log = log.sink();
  options.device.pinned_limit_bytes = std::size_t{200} << 10;
  TinyTrainer trainer(options);
  trainer.start_with(9);
  EXPECT_EQ(log.warnings({"streamed optimizer state"}), 1U) << log.all();
  trainer.add_parameters(10);
  trainer.commit();
  EXPECT_EQ(log.warnings({"streamed optimizer state"}), 1U) << log.all();
  EXPECT_TRUE(trainer.step().result.applied());
}

TEST(Streamed, RefusedPinningIsAnErrorWhereItIsToBeStrict) {
  TinyOptions options = ten_buckets();
  options.config.strict_pinning = true;
  options.device.pinned_limit_bytes = std::size_t{200} << 10;
  {
    TinyTrainer trainer(options);
    trainer.prepare();
    const std::uint64_t before = trainer.gpu().counters().live_registrations;
    expect_error(ErrorCode::out_of_memory,
                 {"streamed optimizer state", refused_by(), "Config::strict_pinning"},
                 [&] { trainer.engine().commit(); });
    EXPECT_EQ(trainer.gpu().counters().live_registrations, before);
  }
  const Trajectory reference = run_trajectory(ten_buckets(), {.steps = 4});
  options.config.placement = Placement::host;
  TinyTrainer trainer(options);
  trainer.start();
  const sim::Counters before = trainer.gpu().counters();
  expect_error(ErrorCode::out_of_memory, {"on the host now", "Config::strict_pinning"},
               [&] { trainer.engine().set_placement({.placement = Placement::device_streamed}); });
  EXPECT_EQ(trainer.gpu().counters().live_registrations, before.live_registrations);
  EXPECT_EQ(trainer.gpu().counters().live_allocations, before.live_allocations);
  EXPECT_EQ(first_difference(reference, run_trajectory(trainer, {.steps = 4})), "");
}

// --- what is sent --------------------------------------------------------------------------------

/// Two buckets of the step to come are on the device before it begins.
TEST(Streamed, StateOfTheNextStepComesEarlyAndNothingComesTwice) {
  TinyTrainer trainer(ten_buckets());
  trainer.start();
  for (std::uint64_t step = 1; step <= 3; ++step) {
    trainer.step();
    const StepStats stats = trainer.engine().stats();
    EXPECT_EQ(stats.state_bytes_down, 10 * kBucketState * step);
    EXPECT_EQ(stats.state_bytes_up, 10 * kBucketState * step + 2 * kBucketState);
    EXPECT_EQ(stats.gradient_bytes_down + stats.weight_bytes_up, 0U);
  }
}

TEST(Streamed, StateWithoutAGradientStaysWhereItIs) {
  TinyOptions options = ten_buckets();
  const auto missing = [](std::uint64_t step, std::uint32_t i) { return step == 1 && i % 3 != 1; };
  options.has_gradient = [=](std::uint64_t step, std::uint32_t i) { return !missing(step, i); };
  TinyTrainer trainer(options);
  trainer.start();
  trainer.step();
  const StepStats before = trainer.engine().stats();
  trainer.step();
  const StepStats after = trainer.engine().stats();
  EXPECT_EQ(after.state_bytes_down - before.state_bytes_down, 3 * kBucketState);
  // Bucket 0 came early, gave way to bucket 4, and comes once more; 1 was there.
  EXPECT_EQ(after.state_bytes_up - before.state_bytes_up, (2 + 2) * kBucketState);
}

/// Any number of buckets, in every schedule: with fewer than there are buffers too.
TEST(Streamed, AnyNumberOfBucketsHasTheBitsOfTheHost) {
  for (const std::uint64_t buckets : {1U, 2U, 3U, 5U}) {
    for (const Schedule schedule :
         {Schedule::exact, Schedule::blocking, Schedule::serial, Schedule::open}) {
      TinyOptions options = ten_buckets();
      options.parameters.resize(buckets);
      options.config.schedule = schedule;
      options.config.loss_scaling = {.dynamic = false, .initial_scale = 1.0};
      options.has_gradient = [](std::uint64_t step, std::uint32_t i) { return step % 3 != i % 3; };
      TinyOptions host = options;
      host.config.placement = Placement::host;
      SCOPED_TRACE(std::to_string(buckets) + " buckets, " + name_of(schedule));
      EXPECT_EQ(first_difference(run_trajectory(host, {.steps = 7}),
                                 run_trajectory(options, {.steps = 7, .digests = 0x4})),
                "");
    }
  }
}

/// A weight that the trainer wrote makes state stale that has come early.
TEST(Streamed, AChangedWeightCountsThoughItsStateHasComeEarly) {
  std::array<std::uint64_t, 2> digests{};
  for (const Placement placement : {Placement::host, Placement::device_streamed}) {
    TinyOptions options = ten_buckets();
    options.config.placement = placement;
    TinyTrainer trainer(options);
    trainer.start();
    trainer.step();
    trainer.forward();
    trainer.gpu().launch(
        trainer.reader(), sim::Duration{0}, [to = trainer.weight(0)](sim::KernelView& view) {
          std::ranges::fill(view.as<std::uint16_t>(to, kBucketElems), std::uint16_t{0x3C00});
        });
    trainer.engine().weights_changed(trainer.id(0), trainer.reader());
    trainer.step();
    EXPECT_GT(trainer.state(0).p[0], 0.5F);
    digests.at(placement == Placement::host ? 0 : 1) = trainer.engine().state_digest();
  }
  EXPECT_EQ(digests[0], digests[1]);
}

// --- what is refused -----------------------------------------------------------------------------

TEST(Streamed, LambIsRefusedWithBothNames) {
  TinyOptions options = ten_buckets();
  options.rules = {{Lamb{.lr = 1e-2}, {}}};
  {
    TinyTrainer trainer(options);
    trainer.prepare();
    const sim::Counters before = trainer.gpu().counters();
    expect_error(ErrorCode::invalid_config,
                 {"commit()", "Placement::device_streamed", "Lamb", "'w0'", "another rule"},
                 [&] { trainer.engine().commit(); });
    EXPECT_EQ(trainer.gpu().counters().live_allocations, before.live_allocations);
  }
  options.config.placement = Placement::host;
  TinyTrainer trainer(options);
  trainer.start();
  trainer.step();
  expect_error(ErrorCode::invalid_config,
               {"set_placement()", "Placement::device_streamed", "Lamb", "'w0'"},
               [&] { trainer.engine().set_placement({.placement = Placement::device_streamed}); });
  EXPECT_TRUE(trainer.step().result.applied());
}

TEST(Streamed, AGradientIsReadByTheUpdate) {
  TinyTrainer trainer(ten_buckets());
  trainer.start();
  trainer.forward();
  trainer.backward();
  expect_error(ErrorCode::protocol_error,
               {"wait_gradient_taken()", "'w3'", "streamed through the device", "step() first"},
               [&] { trainer.engine().wait_gradient_taken(trainer.id(3), trainer.writer()); });
  EXPECT_TRUE(trainer.finish().result.applied());
  EXPECT_NO_THROW(trainer.engine().wait_gradient_taken(trainer.id(3), trainer.writer()));
}

}  // namespace
}  // namespace outboard::testing
