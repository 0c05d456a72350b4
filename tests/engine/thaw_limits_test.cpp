// SPDX-License-Identifier: Apache-2.0
/// Limits that hold for the parameters of every commit() together, and moves of all of their state.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <string>

#include "engine/late_models.hpp"
#include "support/expect_error.hpp"

namespace outboard::testing {
namespace {

TEST(ThawLimits, PinnedSlotsCountThoseOfEveryCommit) {
  for (const std::uint32_t limit : {1U, 2U, 3U, 5U, 6U, 8U}) {
    SCOPED_TRACE(limit);
    Flavour flavour{.name = "limited"};
    flavour.pinned_slots = limit;
    TinyOptions options = equal_parameters(flavour, 4);  // of four buckets of 4 KiB each
    TinyTrainer trainer(options);
    Growths growths = {{0, 1}, {1, 2}, {2, 4}};
    const Trajectory seen = run_growing(trainer, growths, {.steps = 5});
    const Trajectory reference = run_trajectory(
        all_from_the_start(equal_parameters({.name = "free"}, 4), growths), {.steps = 5});
    EXPECT_EQ(first_difference(reference, seen), "");
    std::size_t pinned = 0;
    for (const LedgerEntry& entry : trainer.engine().ledger().entries) {
      if (entry.place == MemoryPlace::host_pinned && entry.purpose != "gate scalars") {
        pinned += entry.bytes;
      }
    }
    EXPECT_LE(pinned, limit * options.config.bucket_bytes);
    EXPECT_GT(pinned, 0U);
  }
}

TEST(ThawLimits, ABudgetCountsWhatIsThereAlready) {
  Flavour flavour{.name = "resident"};
  flavour.placement = Placement::device_resident;
  TinyOptions options = equal_parameters(flavour, 4);
  options.config.device_budget_bytes = 3 * 12 * kElems;
  TinyTrainer trainer(options);
  trainer.start_with(2);
  trainer.run(2);
  const std::uint64_t digest = trainer.engine().state_digest();
  trainer.add_parameters(4);
  expect_error(ErrorCode::out_of_memory,
               {std::to_string(4 * 12 * kElems), std::to_string(3 * 12 * kElems),
                "device_budget_bytes", "'p2', 'p3'"},
               [&] { trainer.engine().commit(); });
  EXPECT_EQ(trainer.engine().state_digest(), digest);
  EXPECT_TRUE(trainer.step().result.applied());
}

TEST(ThawLimits, DeviceMemoryThatRunsOutLeavesTheEngineAsItWas) {
  for (const Flavour& flavour : late_ways()) {
    if (flavour.mode == sim::Mode::threads) continue;
    SCOPED_TRACE(flavour.name);
    const Growths growths = {{0, 4}, {2, 8}};
    const TinyOptions options = mixed_parameters(flavour);
    const Trajectory reference =
        run_trajectory(all_from_the_start(plainly(options), growths), {.steps = 5});
    TinyTrainer trainer(options);
    trainer.start_with(4);
    Trajectory seen = {take_step(trainer, false), take_step(trainer, false)};
    trainer.add_parameters(8);
    trainer.engine().synchronize();
    bool failed = false;
    for (const std::size_t left : {0U, 512U, 4096U, 40000U, 120000U}) {
      const sim::MemoryUse use = trainer.gpu().memory();
      const DeviceBuffer hog(trainer.gpu(), use.limit_bytes - use.used_bytes - left);
      const sim::Counters before = trainer.gpu().counters();
      const auto error = caught([&] { trainer.engine().commit(); });
      if (!error) break;
      failed = true;
      EXPECT_EQ(error->code(), ErrorCode::out_of_memory) << error->what();
      EXPECT_NE(std::string(error->what()).find("'w4'"), std::string::npos) << error->what();
      EXPECT_EQ(trainer.gpu().counters().live_allocations, before.live_allocations);
      EXPECT_EQ(trainer.gpu().counters().live_registrations, before.live_registrations);
    }
    EXPECT_TRUE(failed);
    trainer.commit();
    for (int i = 0; i < 3; ++i) seen.push_back(take_step(trainer, i == 2));
    for (std::uint64_t s = 0; s < 5; ++s) seen[s].loss = trainer.loss(s);
    EXPECT_EQ(first_difference(reference, seen), "");
  }
}

TEST(ThawLimits, AFractionIsThatOfAllOfTheState) {
  Flavour flavour{.name = "half"};
  flavour.placement = Placement::fraction;
  flavour.device_fraction = 0.5;
  TinyTrainer trainer(equal_parameters(flavour, 5));
  trainer.start_with(4);
  EXPECT_EQ(trainer.engine().stats().device_fraction, 0.5);
  trainer.add_parameters(5);
  trainer.commit();
  EXPECT_EQ(trainer.engine().stats().device_fraction, 0.5);
  TinyOptions one_bucket = equal_parameters(flavour, 5);
  one_bucket.parameters[4].elems = 4096;
  TinyTrainer refused(one_bucket);
  refused.start_with(4);
  refused.add_parameters(5);
  expect_error(ErrorCode::invalid_config, {"0.5", "'p4'"}, [&] { refused.engine().commit(); });
  EXPECT_TRUE(refused.step().result.applied());
}

/// Counts of weights that became Inf go along when their table moves.
TEST(ThawLimits, CountsOfOverflowedWeightsGoOn) {
  for (const Placement placement : {Placement::host, Placement::device_resident}) {
    Flavour flavour{.name = "overflows"};
    flavour.placement = placement;
    TinyOptions options = equal_parameters(flavour, 3);
    options.groups = {AdamW{.lr = 0.0}};
    options.parameters[0].initial.assign(kElems, 1e6F);
    options.parameters[0].give_master = true;
    options.gradient = [](const GradientPoint&) { return 0.5F; };
    const Growths growths = {{0, 1}, {2, 2}, {4, 3}};
    TinyTrainer all(all_from_the_start(options, growths));
    all.start();
    all.run(7);
    TinyTrainer growing(options);
    run_growing(growing, growths, {.steps = 7});
    EXPECT_GT(all.engine().stats().weight_overflows, 3 * kElems);
    EXPECT_EQ(growing.engine().stats().weight_overflows, all.engine().stats().weight_overflows);
  }
}

// --- moves ---------------------------------------------------------------------------------------

TEST(ThawMoves, WhatCameLateMovesToo) {
  const Growths growths = {{0, 2}, {1, 4}, {2, 8}};
  Flavour flavour{.name = "movable"};
  TinyOptions options = mixed_parameters(flavour);
  const Trajectory reference = run_trajectory(all_from_the_start(options, growths), {.steps = 8});
  for (const bool move_first : {false, true}) {
    TinyTrainer trainer(options);
    trainer.start_with(2);
    Trajectory seen;
    for (std::uint64_t s = 0; s < 8; ++s) {
      if (move_first && s == 1) {
        trainer.engine().set_placement({.placement = Placement::device_resident});
      }
      if (const std::size_t now = parameters_at(growths, s); now > trainer.in_use()) {
        trainer.add_parameters(now);
        trainer.commit();
      }
      if (s == 4) {
        trainer.engine().set_placement({.placement = Placement::fraction, .device_fraction = 0.5});
      }
      if (s == 6) trainer.engine().set_placement({.placement = Placement::host});
      seen.push_back(take_step(trainer, s + 1 == 8));
      const double share = trainer.engine().stats().device_fraction;
      if (s == 3) {
        EXPECT_EQ(share, move_first ? 1.0 : 0.0);
      }
      if (s == 4) {
        EXPECT_NEAR(share, 0.5, 0.02);
      }
    }
    for (std::uint64_t s = 0; s < 8; ++s) seen[s].loss = trainer.loss(s);
    EXPECT_EQ(first_difference(reference, seen), "");
    EXPECT_EQ(trainer.engine().stats().device_fraction, 0.0);
  }
}

/// The link is slow and the device has room: all state belongs there, the late one's too.
TEST(ThawMoves, AutomaticPlansAgainWithWhatCameLate) {
  Flavour flavour{.name = "automatic"};
  flavour.placement = Placement::automatic;
  TinyOptions options = mixed_parameters(flavour);
  options.device.rates.link_down_bytes_per_s = options.device.rates.link_up_bytes_per_s = 1e8;
  options.device.rates.host_elems_per_s = {1e8};
  options.device.rates.device_bytes_per_s = 1e11;
  options.forward = options.backward = std::chrono::microseconds(20);
  const Growths growths = {{0, 4}, {8, 8}};
  const Trajectory reference = run_trajectory(
      all_from_the_start(mixed_parameters({.name = "host"}), growths), {.steps = 16});
  TinyTrainer trainer(options);
  trainer.start_with(4);
  Trajectory seen;
  for (std::uint64_t s = 0; s < 16; ++s) {
    if (s == 8) {
      EXPECT_GT(trainer.engine().stats().device_fraction, 0.0);
      const double before = trainer.engine().stats().device_fraction;
      trainer.add_parameters(8);
      trainer.commit();
      EXPECT_GT(trainer.engine().stats().device_fraction, 0.0);
      EXPECT_LT(trainer.engine().stats().device_fraction, before) << "late ones begin on the host";
    }
    seen.push_back(take_step(trainer, s + 1 == 16));
  }
  for (std::uint64_t s = 0; s < 16; ++s) seen[s].loss = trainer.loss(s);
  EXPECT_EQ(first_difference(reference, seen), "");
  EXPECT_EQ(trainer.engine().stats().moves, 2U);
  EXPECT_GT(trainer.engine().stats().device_fraction, 0.65) << "32,768 of 57,344 were there before";
  EXPECT_GT(trainer.engine().stats().predicted_step_us, 0.0);
}

}  // namespace
}  // namespace outboard::testing
