// SPDX-License-Identifier: Apache-2.0
/// State that moves between host and device in mid-run: no bit changes, nothing is ever half moved.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "engine/drawn_options.hpp"
#include "engine/every_rule.hpp"
#include "engine/splits.hpp"
#include "engine/trajectory.hpp"
#include "outboard/planning.hpp"
#include "support/expect_error.hpp"
#include "support/seeds.hpp"

namespace outboard::testing {
namespace {

constexpr std::uint64_t kSeeds = 150;
/// In place of a share: on the host, streamed through the device.
constexpr double kStreamed = -1.0;
constexpr std::array<double, 8> kShares = {0.3,       1.0, kStreamed, 0.0,
                                           kStreamed, 0.7, kStreamed, 0.0};

/// With room on the host for all of it.
TinyOptions half_resident(Accumulate accumulate = Accumulate::trainer) {
  TinyOptions options = small_model();
  options.config.accumulate = accumulate;
  options.config.placement = Placement::fraction;
  options.config.device_fraction = 0.5;
  options.config.keep_host_room = true;
  round_fraction(options);
  return options;
}

/// What cannot stream keeps about half of it on the device instead.
PlacementChange to_share(const TinyOptions& options, double share) {
  if (share == kStreamed && !has_lamb(options)) return {.placement = Placement::device_streamed};
  if (share == kStreamed) share = 0.5;
  return {.placement = Placement::fraction,
          .device_fraction = nearest_split(options, share).fraction};
}

/// A step before the first move, and one after each.
Trajectory run_with_moves(TinyTrainer& trainer) {
  Trajectory out = run_trajectory(trainer, {.steps = 1, .digests = 0});
  for (const double share : kShares) {
    trainer.engine().set_placement(to_share(trainer.options(), share));
    append(out, run_trajectory(trainer, {.steps = 1}));
  }
  return out;
}

Trajectory reference_of(TinyOptions options) {
  options.config.placement = Placement::host;
  options.config.device_fraction = 0.0;
  return run_trajectory(options, {.steps = 1 + kShares.size()});
}

TinyOptions draw_options(std::uint64_t seed) {
  TinyOptions options = small_model();
  std::uint64_t count = 0;
  const auto below = [&](std::uint64_t bound) { return mix_bits(seed, ++count, 3) % bound; };
  options.device.seed = seed;
  options.device.max_random_delay = sim::Duration(below(2) * 1'000'000);
  options.device.stream_memory_ops = below(2) == 1;
  options.device.rates.link_up_bytes_per_s = below(2) == 1 ? 1e8 : 0.0;
  options.device.rates.host_elems_per_s = {below(2) == 1 ? 1e7 : 0.0, 1e8};
  if (below(4) == 0) options.device.pinned_limit_bytes = below(100'000);
  Config& config = options.config;
  const std::array<Schedule, 4> schedules = {Schedule::serial, Schedule::blocking, Schedule::exact,
                                             Schedule::exact};
  config.schedule = schedules.at(below(schedules.size()));
  if (below(2) == 1) config.host.synthetic_topology = "numa:2 core:1 pu:1";
  if (below(3) == 0) config.pinned_slots = static_cast<std::uint32_t>(1 + below(6));
  if (below(3) == 0) config.accumulate = Accumulate::host;
  config.check_waits = below(3) == 0;
  if (below(3) == 0) options.rules = {{Lamb{.lr = 1e-2}, {.ema_decay = 0.9}}, {Lion{.lr = 1e-3}}};
  const std::array<Placement, 4> starts = {Placement::host, Placement::device_resident,
                                           Placement::fraction, Placement::device_streamed};
  config.placement = starts.at(below(has_lamb(options) ? 3 : 4));
  config.keep_host_room = config.placement != Placement::host;
  if (config.placement == Placement::fraction) config.device_fraction = 0.5;
  round_fraction(options);
  options.second_stream = below(2) == 1;
  return options;
}

TEST(Moves, ChangeNoBit) {
  for_each_seed(kSeeds, [](std::uint64_t seed) {
    const TinyOptions options = draw_options(seed);
    TinyTrainer trainer(options);
    trainer.start();
    EXPECT_EQ(first_difference(reference_of(options), run_with_moves(trainer)), "");
  });
}

TEST(Moves, ChangeNoBitInRealTime) {
  TinyOptions options = small_model();
  options.device.mode = sim::Mode::threads;
  const Trajectory reference = reference_of(options);
  for (int repetition = 0; repetition < 5; ++repetition) {
    TinyTrainer trainer(options);
    trainer.start();
    EXPECT_EQ(first_difference(reference, run_with_moves(trainer)), "");
  }
}

// --- memory --------------------------------------------------------------------------------------

/// The ledger's lines, in an order of their own.
std::string sorted_lines(const MemoryLedger& ledger) {
  std::istringstream text(ledger.to_string());
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(line + "\n");
  std::ranges::sort(lines);
  std::string out;
  for (const std::string& line : lines) out += line;
  return out;
}

std::vector<PlannedParameter> planned(const TinyOptions& options) {
  std::vector<PlannedParameter> out;
  for (const TinyParameter& parameter : options.parameters) out.push_back({parameter.elems});
  return out;
}

TEST(Moves, LeaveTheLedgerThatThePlacementHasFromTheStart) {
  for (const Accumulate accumulate : {Accumulate::trainer, Accumulate::host}) {
    TinyOptions options = small_model();
    options.config.accumulate = accumulate;
    TinyTrainer trainer(options);
    trainer.start();
    const std::size_t before = trainer.gpu().memory().used_bytes;
    for (const double share : kShares) {
      const PlacementChange change = to_share(options, share);
      trainer.engine().set_placement(change);
      Config config = options.config;
      config.placement = change.placement;
      config.device_fraction = change.device_fraction;
      config.keep_host_room = true;
      EXPECT_EQ(sorted_lines(trainer.engine().ledger()),
                sorted_lines(plan_memory(planned(options), 1, config)));
      TinyOptions from_start = options;
      from_start.config = config;
      TinyTrainer other(from_start);
      other.start();
      EXPECT_EQ(other.engine().ledger().to_string(), trainer.engine().ledger().to_string());
      EXPECT_EQ(other.engine().describe(), trainer.engine().describe());
    }
    EXPECT_EQ(trainer.gpu().memory().used_bytes, before);
  }
}

TEST(Moves, NeverHoldMoreThanTheLargerPlacement) {
  TinyOptions options = small_model();
  options.config.placement = Placement::device_resident;
  options.config.keep_host_room = true;
  TinyTrainer trainer(options);
  trainer.start();
  const std::size_t all = trainer.gpu().memory().used_bytes;
  trainer.step();
  for (const double share : {0.5, 0.9, 0.3, 1.0}) {
    trainer.engine().set_placement(to_share(options, share));
    trainer.step();
  }
  EXPECT_LE(trainer.gpu().memory().peak_bytes, all);
}

// --- what is refused -----------------------------------------------------------------------------

TEST(Moves, AreRefusedWithAGradientPending) {
  TinyTrainer trainer(small_model());
  trainer.start();
  trainer.step();
  trainer.forward();
  trainer.give_gradient(3);
  expect_error(ErrorCode::protocol_error, {"set_placement()", "'w3'", "pending", "discard()"},
               [&] { trainer.engine().set_placement({.placement = Placement::device_resident}); });
  trainer.engine().discard();
  EXPECT_NO_THROW(trainer.engine().set_placement({.placement = Placement::device_resident}));
}

/// What was queued before discard() is still to be added to a sum whose memory a move gives back.
TEST(Moves, WaitForTheSumsOfDroppedGradients) {
  const TinyOptions options = half_resident(Accumulate::host);
  TinyTrainer trainer(options);
  trainer.start();
  trainer.step();
  const std::uint64_t before = trainer.engine().state_digest();
  trainer.forward();
  trainer.gpu().launch(trainer.reader(), std::chrono::milliseconds(50), [](sim::KernelView&) {});
  trainer.backward();
  trainer.engine().discard();
  trainer.engine().set_placement(to_share(options, 1.0));
  trainer.gpu().synchronize();
  EXPECT_EQ(trainer.engine().state_digest(), before);
}

/// A sink may call the engine; what it is made of must outlive the call.
TEST(Moves, MayBeAskedForByTheLog) {
  TinyOptions options = small_model();
  TinyTrainer* running = nullptr;
  const auto owned = std::make_shared<int>(0);
  options.config.log = [&running, owned](LogLevel, std::string_view line) {
    if (line.find("skipped") == std::string_view::npos) return;
    running->engine().set_placement({.placement = Placement::device_resident});
    *owned += 1;
  };
  TinyTrainer trainer(options);
  running = &trainer;
  trainer.start();
  const Trajectory reference = reference_of(small_model());
  EXPECT_EQ(first_difference(reference, run_trajectory(trainer, {.steps = 1 + kShares.size()})),
            "");
  EXPECT_EQ(*owned, 1);
}

TEST(Moves, NeedRoomOnTheHost) {
  TinyOptions options = small_model();
  options.config.placement = Placement::device_resident;
  TinyTrainer trainer(options);
  trainer.start();
  expect_error(ErrorCode::invalid_config, {"set_placement()", "0 of 12 buckets", "keep_host_room"},
               [&] { trainer.engine().set_placement({.placement = Placement::host}); });
  EXPECT_TRUE(trainer.step().result.applied());
}

TEST(Moves, ThatDoNotFitChangeNothing) {
  const TinyOptions options = half_resident();
  TinyTrainer trainer(options);
  trainer.start();
  const Trajectory reference = reference_of(options);
  Trajectory seen = run_trajectory(trainer, {.steps = 1});
  const std::string placed = trainer.engine().describe();
  const PlacementChange all{.placement = Placement::device_resident};
  PlacementChange in_budget = all;
  in_budget.device_budget_bytes = 100'000;
  expect_error(ErrorCode::out_of_memory, {"device_budget_bytes is 100000", "short"},
               [&] { trainer.engine().set_placement(in_budget); });
  expect_error(ErrorCode::invalid_config, {"0.44", "within 2 %"}, [&] {
    trainer.engine().set_placement({.placement = Placement::fraction, .device_fraction = 0.44});
  });
  expect_error(ErrorCode::invalid_config, {"device_fraction is 2"}, [&] {
    trainer.engine().set_placement({.placement = Placement::fraction, .device_fraction = 2.0});
  });
  {
    const sim::MemoryUse use = trainer.gpu().memory();
    const DeviceBuffer hog(trainer.gpu(), use.limit_bytes - use.used_bytes - 4096);
    expect_error(ErrorCode::out_of_memory, {"are free", "short"},
                 [&] { trainer.engine().set_placement(all); });
  }
  EXPECT_EQ(trainer.engine().describe(), placed);
  append(seen, run_trajectory(trainer, {.steps = kShares.size()}));
  EXPECT_EQ(first_difference(reference, seen), "");
}

/// Room enough, but in pieces: the allocation itself is refused, with the state on the host by
/// then.
TEST(Moves, ThatFailHalfWayLeaveAllOfTheStateOnTheHost) {
  const TinyOptions options = half_resident();
  TinyTrainer trainer(options);
  trainer.start();
  Trajectory seen = run_trajectory(trainer, {.steps = 1});
  {
    const auto pieces = leave_pieces(trainer.gpu(), std::size_t{8} << 10);
    expect_error(ErrorCode::out_of_memory, {"on the host now", "largest free range"}, [&] {
      trainer.engine().set_placement({.placement = Placement::device_resident});
    });
  }
  EXPECT_NE(trainer.engine().describe().find("all on the host"), std::string::npos);
  append(seen, run_trajectory(trainer, {.steps = kShares.size()}));
  EXPECT_EQ(first_difference(reference_of(options), seen), "");
}

// --- failures ------------------------------------------------------------------------------------

struct Met {
  bool fault = false;    ///< at all
  bool in_move = false;  ///< while state moved
};

/// A run with moves under one fault. Whatever becomes of a move, the engine either refuses all
/// calls from then on or goes on with the right bits.
Met survives(const TinyOptions& options, const Trajectory& reference) {
  Met met;
  std::optional<TinyTrainer> trainer;
  if (caught([&] { trainer.emplace(options).start(); })) return {true, false};
  Trajectory seen;
  for (std::size_t i = 0; i <= kShares.size(); ++i) {
    const auto step = [&] { append(seen, run_trajectory(*trainer, {.steps = 1})); };
    if (caught(step)) return {true, met.in_move};
    if (i == kShares.size()) break;
    const auto error =
        caught([&] { trainer->engine().set_placement(to_share(trainer->options(), kShares[i])); });
    if (!error) continue;
    met = {true, true};
    if (error->code() != ErrorCode::device_failure) return met;
    expect_error(ErrorCode::poisoned, {}, [&] {
      try {
        trainer->engine().synchronize();
      } catch (const Error& failure) {  // a lost device says so itself
        throw Error(ErrorCode::poisoned, failure.what());
      }
    });
    return met;
  }
  EXPECT_EQ(first_difference(reference, seen), "");
  return met;
}

TEST(Moves, AreAllOrNothingUnderFaults) {
  TinyOptions options = small_model();
  const Trajectory reference = reference_of(options);
  for (const sim::Call call : {sim::Call::allocate, sim::Call::copy_to_host,
                               sim::Call::copy_to_device, sim::Call::record}) {
    for (const bool at_call : {true, false}) {
      std::uint64_t missed = 0;
      std::uint64_t in_move = 0;
      for (std::uint64_t nth = 1; missed < 2 && nth < 2000 && !HasFailure(); ++nth) {
        SCOPED_TRACE(std::string(sim::to_string(call)) + " " + std::to_string(nth));
        options.device.faults = {{.call = call, .nth = nth, .at_call = at_call}};
        const Met met = survives(options, reference);
        missed += met.fault ? 0 : 1;
        in_move += met.in_move ? 1 : 0;
      }
      EXPECT_EQ(missed, 2U);
      EXPECT_GE(in_move, 3U) << sim::to_string(call);
    }
  }
}

}  // namespace
}  // namespace outboard::testing
