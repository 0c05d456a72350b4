// SPDX-License-Identifier: Apache-2.0
/// Parameters that are thawed, or new: commit() again between steps takes them in, and what was
/// there stays where and what it is.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "engine/allocation_counter.hpp"
#include "engine/every_rule.hpp"
#include "engine/flavours.hpp"
#include "engine/late_parameters.hpp"
#include "engine/splits.hpp"
#include "support/expect_error.hpp"
#include "support/log_lines.hpp"
#include "support/manual_trainer.hpp"

namespace outboard::testing {
namespace {

std::vector<Flavour> ways() {
  std::vector<Flavour> out = all_flavours();
  const std::vector<Flavour> open = open_flavours();
  out.insert(out.end(), open.begin(), open.end());
  for (Flavour flavour : {Flavour{.name = "virtual_sums"}, open.front()}) {
    flavour.accumulate = Accumulate::host;
    if (flavour.schedule == Schedule::open) flavour.name = "virtual_open_sums";
    out.push_back(flavour);
  }
  out.push_back(Flavour{.name = "virtual_half"});
  out.back().placement = Placement::fraction;
  out.back().device_fraction = 0.5;
  out.push_back(out.back());
  out.back().name = "virtual_half_bounce_sums";
  out.back().pinned_slots = 2;
  out.back().accumulate = Accumulate::host;
  return out;
}

class Thaw : public ::testing::TestWithParam<Flavour> {};
INSTANTIATE_TEST_SUITE_P(Ways, Thaw, ::testing::ValuesIn(ways()),
                         [](const auto& test) { return flavour_name(test.param); });

/// Equal parameters of two buckets each.
constexpr std::uint64_t kElems = 8192;

TinyOptions equal_parameters(const Flavour& flavour, std::size_t count) {
  TinyOptions options;
  options.device = flavour.device();
  Config config;
  config.max_grad_norm = 1.0;
  config.loss_scaling.initial_scale = 64.0;
  options.config = flavour.apply(config);
  options.groups = {AdamW{.lr = 1e-2, .weight_decay = 0.1}};
  options.parameters.resize(count);
  for (TinyParameter& parameter : options.parameters) parameter.elems = kElems;
  options.digest = false;
  return options;
}

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

TEST_P(Thaw, AFrozenParameterIsFreeUntilItIsThawed) {
  if (GetParam().placement == Placement::fraction) GTEST_SKIP() << "a half of each is asked for";
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

/// Sizes of which each commit() has two halves of two buckets or parameters.
TinyOptions mixed_parameters(const Flavour& flavour) {
  TinyOptions options = equal_parameters(flavour, 0);
  options.groups = {AdamW{.lr = 1e-2, .weight_decay = 0.1}, AdamW{.lr = 3e-3, .beta2 = 0.95}};
  const std::array<std::uint64_t, 8> sizes = {8192, 8192, 8192, 8192, 8192, 8192, 4096, 4096};
  add_parameters(options, sizes);
  return options;
}
/// Whole, on the host: the share of one that has all from the start may be another.
TinyOptions plainly(TinyOptions options) {
  options.config.placement = Placement::host;
  options.config.device_fraction = 0.0;
  return options;
}
const Growths kPairs = {{0, 2}, {2, 4}, {3, 6}, {5, 8}};

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

TEST_P(Thaw, CostsStepsNothing) {
  if (!allocations_counted()) GTEST_SKIP() << "a sanitizer owns malloc";
  TinyTrainer trainer(mixed_parameters(GetParam()));
  trainer.start_with(2);
  trainer.run(2);
  trainer.add_parameters(6);
  trainer.commit();
  trainer.run(2);
  trainer.add_parameters(8);
  trainer.commit();
  trainer.run(4);
  trainer.engine().synchronize();
  trainer.gpu().synchronize();
  start_counting();
  for (int i = 0; i < 8; ++i) trainer.step();
  trainer.engine().synchronize();
  EXPECT_EQ(stop_counting(), 0U) << first_allocation();
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

// --- calls between steps -------------------------------------------------------------------------

/// Trainers whose parameters a test adds by name.
class LateTrainer : public ::testing::TestWithParam<Flavour> {
 protected:
  void SetUp() override {
    Config config = GetParam().apply({});
    config.loss_scaling = {.dynamic = false, .initial_scale = 1.0};
    config.log = log_.sink();
    trainer_.emplace(config, GetParam().device());
    group_ = engine().add_group({.lr = 0.1});
    first_ = t().add("first", std::vector<float>(4096, 1.0F), group_);
    second_ = t().add("second", std::vector<float>(4096, 1.0F), group_);
    engine().commit();
  }
  ManualTrainer& t() { return trainer_.value(); }
  Engine& engine() { return *t().engine; }
  void step_first() {
    engine().wait(first_, t().stream);
    t().give(first_, std::vector<float>(4096, 0.5F));
    EXPECT_TRUE(engine().step().applied());
  }
  ParameterSpec spec(const std::string& name, void* data) {
    ParameterSpec out;
    out.name = name;
    out.elems = 4096;
    out.data = data;
    out.group = group_;
    return out;
  }
  LogLines log_;
  std::optional<ManualTrainer> trainer_;
  GroupId group_;
  ParameterId first_, second_;
};
/// One more parameter of one bucket leaves no half.
std::vector<Flavour> whole_ways() {
  std::vector<Flavour> out = ways();
  std::erase_if(out, [](const Flavour& way) { return way.placement == Placement::fraction; });
  return out;
}
INSTANTIATE_TEST_SUITE_P(Ways, LateTrainer, ::testing::ValuesIn(whole_ways()),
                         [](const auto& test) { return flavour_name(test.param); });

TEST_P(LateTrainer, CommitsAgainWithoutNewsForNothing) {
  step_first();
  const std::uint64_t syncs = engine().stats().host_device_syncs;
  const sim::Counters before = t().gpu.counters();
  engine().add_group({.lr = 0.2});  // has no parameter
  engine().commit();
  engine().commit();
  const sim::Counters after = t().gpu.counters();
  EXPECT_EQ(after.copies_to_device, before.copies_to_device);
  EXPECT_EQ(after.host_waits, before.host_waits);
  EXPECT_EQ(engine().stats().host_device_syncs, syncs);
  engine().wait(first_, t().stream);
  t().give(first_, std::vector<float>(4096, 0.5F));
  engine().commit();  // even now
  EXPECT_TRUE(engine().step().applied());
}

TEST_P(LateTrainer, IsToldToCommitAParameterBeforeItIsUsed) {
  void* const data = t().make(std::vector<float>(4096, 1.0F));
  const ParameterId late = engine().add_parameter(spec("late", data));
  const auto refused = [&](const char* call, auto&& body) {
    SCOPED_TRACE(call);
    expect_error(ErrorCode::protocol_error, {call, "'late'", "not committed", "commit()"}, body);
  };
  refused("gradient_ready()", [&] { engine().gradient_ready(late, data, t().stream); });
  refused("wait()", [&] { engine().wait(late, t().stream); });
  refused("wait_gradient_taken()", [&] { engine().wait_gradient_taken(late, t().stream); });
  refused("weights_changed()", [&] { engine().weights_changed(late, t().stream); });
  refused("read_state()", [&] { engine().read_state(late, {}); });
  refused("state_streams()", [&] { (void)engine().state_streams(late); });
  refused("step_count()", [&] { (void)engine().step_count(late); });
  step_first();
  engine().commit();
  EXPECT_EQ(engine().step_count(late), 0U);
  EXPECT_EQ(engine().step_count(first_), 1U);
}

TEST_P(LateTrainer, IsRefusedWhileAGradientIsPending) {
  void* const data = t().make(std::vector<float>(4096, 1.0F));
  engine().add_parameter(spec("in time", data));
  t().give(first_, std::vector<float>(4096, 0.5F));
  const auto refused = [&](const char* call, auto&& body) {
    SCOPED_TRACE(call);
    expect_error(ErrorCode::protocol_error, {call, "'first'", "pending", "step()"}, body);
  };
  void* const other = t().make(std::vector<float>(4096, 1.0F));
  refused("add_group()", [&] { engine().add_group({}); });
  refused("add_parameter() of 'late'", [&] { engine().add_parameter(spec("late", other)); });
  refused("commit()", [&] { engine().commit(); });
  EXPECT_TRUE(engine().step().applied());
  engine().commit();
  engine().add_parameter(spec("late", other));
  engine().commit();
  EXPECT_EQ(engine().ledger().trainable_elems, 4U * 4096U);
}

TEST_P(LateTrainer, RefusesBadWeightsByNameAndGoesOnWithout) {
  step_first();
  const std::uint64_t digest = engine().state_digest();
  std::vector<float> values(4096, 1.0F);
  values[7] = std::numeric_limits<float>::quiet_NaN();
  void* const good = t().make(std::vector<float>(4096, 1.0F));
  void* const bad = t().make(values);
  const ParameterId late = engine().add_parameter(spec("late", good));
  engine().add_parameter(spec("broken", bad));
  const sim::Counters before = t().gpu.counters();
  const MemoryLedger ledger = engine().ledger();
  for (int i = 0; i < 2; ++i) {
    expect_error(ErrorCode::invalid_argument,
                 {"'broken'", "NaN at element 7", "not committed: 'late', 'broken'"},
                 [&] { engine().commit(); });
  }
  const sim::Counters after = t().gpu.counters();
  EXPECT_EQ(after.live_allocations, before.live_allocations);
  EXPECT_EQ(after.live_streams, before.live_streams);
  EXPECT_EQ(after.live_events, before.live_events);
  EXPECT_EQ(after.live_registrations, before.live_registrations);
  EXPECT_EQ(engine().ledger().to_string(), ledger.to_string());
  EXPECT_EQ(engine().state_digest(), digest);
  step_first();
  expect_error(ErrorCode::protocol_error, {"'late'", "not committed"},
               [&] { engine().gradient_ready(late, good, t().stream); });
  values[7] = 1.0F;
  upload<std::byte>(t().gpu, bad, to_elements(values, DType::f16), t().stream);
  t().gpu.synchronize();
  engine().commit();
  engine().wait(first_, t().stream);
  t().give(first_, std::vector<float>(4096, 0.0F));
  engine().gradient_ready(late, t().make(std::vector<float>(4096, 1.0F)), t().stream);
  EXPECT_TRUE(engine().step().applied());
  EXPECT_EQ(engine().step_count(late), 1U);
  EXPECT_EQ(engine().step_count(first_), 3U);
}

TEST_P(LateTrainer, TakesASecondNameForAWeightThatIsThere) {
  step_first();
  EXPECT_EQ(engine().add_parameter(spec("tied", t().weight(first_))), first_);
  EXPECT_EQ(engine().step_count(first_), 1U) << "nothing to commit";
  const GroupId other = engine().add_group({.lr = 0.3});
  ParameterSpec wrong = spec("wrong", t().weight(first_));
  wrong.group = other;
  expect_error(ErrorCode::invalid_argument, {"'wrong'", "'first'", "another group"},
               [&] { engine().add_parameter(wrong); });
  expect_error(ErrorCode::invalid_argument, {"'tied'", "registered already"},
               [&] { engine().add_parameter(spec("tied", t().weight(second_))); });
}

TEST_P(LateTrainer, TakesEmptyParametersAlone) {
  step_first();
  ParameterSpec empty = spec("empty", nullptr);
  empty.elems = 0;
  const ParameterId id = engine().add_parameter(empty);
  engine().commit();
  step_first();
  engine().wait(id, t().stream);
  engine().gradient_ready(id, nullptr, t().stream);
  EXPECT_EQ(engine().step_count(id), 0U);
  EXPECT_EQ(engine().step_count(first_), 2U);
}

TEST_P(LateTrainer, SaysWhatCameAndForgetsNoStatistics) {
  step_first();
  engine().synchronize();
  const StepStats before = engine().stats();
  log_.clear();
  const GroupId group = engine().add_group(Lion{.lr = 0.25});
  ParameterSpec late = spec("late", t().make(std::vector<float>(4096, 1.0F)));
  late.group = group;
  engine().add_parameter(late);
  engine().commit();
  const StepStats after = engine().stats();
  EXPECT_EQ(after.steps_applied, before.steps_applied);
  EXPECT_EQ(after.copies_down, before.copies_down);
  EXPECT_EQ(after.weight_bytes_up, before.weight_bytes_up);
  // In real time the ring may still have been busy when the uploads had passed.
  if (GetParam().mode == sim::Mode::virtual_time) {
    EXPECT_EQ(after.update_busy_us, before.update_busy_us);
  }
  const std::string text = log_.all();
  EXPECT_NE(text.find("commit(): parameter 'late' more"), std::string::npos) << text;
  EXPECT_NE(text.find("Lion"), std::string::npos) << text;
  EXPECT_EQ(text.find("group 0"), std::string::npos) << text;
  EXPECT_NE(engine().describe().find("3 buckets"), std::string::npos) << engine().describe();
}

TEST_P(LateTrainer, TakesMastersOfItsOwn) {
  step_first();
  std::vector<float> values(4096);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = mixed_unit(1, 2, i) + 0.0001F;
  ParameterSpec late = spec("late", t().make(std::vector<float>(4096, 7.0F)));
  late.master = values;
  const ParameterId id = engine().add_parameter(late);
  engine().commit();
  std::vector<float> master(4096);
  engine().read_state(id, {.master = master});
  EXPECT_EQ(master, values);
  const auto words = download<std::uint16_t>(t().gpu, late.data, 4096, t().stream);
  EXPECT_EQ(float_of_bits(words[9], DType::f16),
            float_of_bits(bits_of_float(values[9], DType::f16), DType::f16));
}

// --- limits --------------------------------------------------------------------------------------

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
  for (const Flavour& flavour : ways()) {
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
