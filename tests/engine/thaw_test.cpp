// SPDX-License-Identifier: Apache-2.0
/// Parameters that are thawed, or new: commit() again between steps takes them in, and what was
/// there stays where and what it is.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include "engine/every_rule.hpp"
#include "engine/late_models.hpp"

namespace outboard::testing {
namespace {

class Thaw : public ::testing::TestWithParam<Flavour> {};
class WholeThaw : public Thaw {};
INSTANTIATE_TEST_SUITE_P(Ways, WholeThaw, ::testing::ValuesIn(whole_ways()),
                         [](const auto& test) { return flavour_name(test.param); });
INSTANTIATE_TEST_SUITE_P(Ways, Thaw, ::testing::ValuesIn(late_ways()),
                         [](const auto& test) { return flavour_name(test.param); });

/// Of the FP32 state, wherever it is, without what pads an arena to a page.
std::uint64_t state_bytes(const Engine& engine) {
  std::uint64_t bytes = 0;
  for (const LedgerEntry& entry : engine.ledger().entries) {
    const bool state = entry.purpose == "master weight" || entry.purpose == "exp_avg" ||
                       entry.purpose == "exp_avg_sq";
    if (state) bytes += entry.bytes;
  }
  return bytes;
}

/// An arena starts on a page and its stream up to 8,704 bytes behind.
constexpr std::uint64_t kArenaPadding = 3 * (8704 + 4096);

// --- frozen and thawed ---------------------------------------------------------------------------

TEST_P(WholeThaw, AFrozenParameterIsFreeUntilItIsThawed) {
  constexpr std::uint64_t kBytes = 12 * kElems;
  TinyOptions options = equal_parameters(GetParam(), 10);
  options.has_gradient = [](std::uint64_t step, std::uint32_t i) {
    return i == (step < 5 ? 0 : 1);
  };
  TinyTrainer trainer(options);
  const std::uint64_t nodes = GetParam().topology == Flavour{}.topology ? 1 : 2;
  trainer.start_with(1);
  EXPECT_GE(state_bytes(trainer.engine()), kBytes);
  EXPECT_LE(state_bytes(trainer.engine()), kBytes + nodes * kArenaPadding);
  trainer.run(5);
  EXPECT_EQ(trainer.engine().step_count(trainer.id(0)), 5U);
  const auto frozen_weight =
      download<std::uint16_t>(trainer.gpu(), trainer.weight(1), kElems, trainer.reader());
  trainer.add_parameters(2);
  trainer.commit();
  EXPECT_GE(state_bytes(trainer.engine()), 2 * kBytes);
  EXPECT_LE(state_bytes(trainer.engine()), 2 * kBytes + 2 * nodes * kArenaPadding);
  EXPECT_EQ(trainer.engine().ledger().trainable_elems, 2 * kElems);
  EXPECT_EQ(trainer.engine().step_count(trainer.id(1)), 0U);
  EXPECT_EQ(trainer.state(1).weight, frozen_weight);
  EXPECT_EQ(trainer.state(1).m, std::vector<float>(kElems, 0.0F));
  const TinyTrainer::State frozen = trainer.state(0);
  trainer.run(5);
  EXPECT_EQ(trainer.state(0), frozen) << "the one that is frozen now";
  EXPECT_EQ(trainer.state(1).t, 5U);
  EXPECT_NE(trainer.state(1).weight, frozen_weight);
}

TEST_P(Thaw, HasTheBitsOfOneThatWasThereWithoutGradients) {
  const TinyOptions options = mixed_parameters(GetParam());
  const Trajectory reference =
      run_trajectory(all_from_the_start(plainly(options), kPairs), {.steps = 8});
  TinyTrainer trainer(options);
  EXPECT_EQ(first_difference(reference, run_growing(trainer, kPairs, {.steps = 8})), "");
}

/// Rules that keep more, or other, streams than those before, in groups that are new as well.
TEST_P(Thaw, MayBringRulesThatKeepMore) {
  TinyOptions options = mixed_parameters(GetParam());
  options.groups.clear();
  options.rules = {{Sgd{.lr = 1e-2}},
                   {Lion{.lr = 1e-3}, random_with_average()},
                   {Lamb{.lr = 1e-2}},
                   {AdamW{.lr = 1e-2}, random_with_average()}};
  if (GetParam().placement == Placement::device_streamed) options.rules[2] = {Adagrad{.lr = 0.1}};
  for (std::uint32_t i = 0; i < 8; ++i) options.parameters[i].group = i / 2;
  options.parameters[4].dtype = options.parameters[5].dtype = DType::f32;
  const Trajectory reference =
      run_trajectory(all_from_the_start(plainly(options), kPairs), {.steps = 8});
  TinyTrainer trainer(options);
  EXPECT_EQ(first_difference(reference, run_growing(trainer, kPairs, {.steps = 8})), "");
  EXPECT_EQ(trainer.engine().state_streams(trainer.id(0)).size(), 1U);
  EXPECT_EQ(trainer.engine().state_streams(trainer.id(7)).size(), 4U);
}

/// Everything but the small tables of a few numbers for each parameter.
std::vector<LedgerEntry> large_entries(const Engine& engine) {
  std::vector<LedgerEntry> entries = engine.ledger().entries;
  std::erase_if(entries, [](const LedgerEntry& entry) { return entry.purpose == "gate scalars"; });
  return entries;
}

TEST_P(Thaw, LeavesWhatWasThereWhereItIs) {
  TinyTrainer trainer(mixed_parameters(GetParam()));
  trainer.start_with(4);
  trainer.run(2);
  const std::vector<LedgerEntry> before = large_entries(trainer.engine());
  trainer.add_parameters(8);
  trainer.commit();
  const std::vector<LedgerEntry> after = large_entries(trainer.engine());
  for (const LedgerEntry& entry : before) {
    const auto same = [&](const LedgerEntry& other) {
      return other.purpose == entry.purpose && other.address == entry.address &&
             other.bytes == entry.bytes && other.place == entry.place && other.node == entry.node;
    };
    EXPECT_EQ(std::ranges::count_if(after, same), 1) << entry.purpose;
  }
  EXPECT_GT(after.size(), before.size());
}

TEST_P(Thaw, MayHappenTwentyTimes) {
  TinyOptions options = equal_parameters(GetParam(), 42);
  for (TinyParameter& parameter : options.parameters) parameter.elems = 2048;
  for (std::size_t i = 20; i < 42; ++i) options.parameters[i].elems = 4096 + 2048 * (i / 4);
  if (GetParam().placement == Placement::fraction) {
    for (TinyParameter& parameter : options.parameters) parameter.elems = 4096;
  }
  Growths growths;
  for (std::uint64_t s = 0; s <= 20; ++s) growths.push_back({s, 2 * s + 2});
  const Trajectory reference =
      run_trajectory(all_from_the_start(plainly(options), growths), {.steps = 24});
  TinyTrainer trainer(options);
  const std::size_t used = trainer.gpu().memory().used_bytes;
  EXPECT_EQ(first_difference(reference, run_growing(trainer, growths, {.steps = 24})), "");
  trainer.stop();
  EXPECT_EQ(trainer.gpu().memory().used_bytes, used);
}

TEST_P(Thaw, MayBeFollowedByTheEndAtAnyMoment) {
  for (std::uint64_t i = 0; i < 40; ++i) {
    TinyOptions options = mixed_parameters(GetParam());
    options.device.seed = i;
    if (options.device.mode == sim::Mode::virtual_time) {
      options.device.max_random_delay = std::chrono::microseconds(50);
      options.device.rates.host_elems_per_s = {1e8};
    }
    TinyTrainer trainer(options);
    const sim::Counters before = trainer.gpu().counters();
    trainer.start_with(4);
    if (i % 4 > 0) trainer.step();
    trainer.add_parameters(8);
    if (i % 2 > 0) trainer.commit();  // else they stay registered
    if (i % 4 > 1) trainer.step();
    if (i % 8 > 4) trainer.forward();
    trainer.stop();
    const sim::Counters after = trainer.gpu().counters();
    ASSERT_EQ(after.live_allocations, before.live_allocations) << i;
    ASSERT_EQ(after.live_streams, before.live_streams) << i;
    ASSERT_EQ(after.live_events, before.live_events) << i;
    ASSERT_EQ(after.live_registrations, before.live_registrations) << i;
  }
}

}  // namespace
}  // namespace outboard::testing
