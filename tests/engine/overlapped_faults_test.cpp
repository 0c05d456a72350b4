// SPDX-License-Identifier: Apache-2.0
// Device calls that fail, at once or when they run, while one step overlaps the next: nothing here
// drains the engine between steps. Drawn from seeds: the call, the way to run, delays, and what
// happens between steps. Whatever fails, the error names the call, the engine refuses everything
// from then on or goes on with the right bits, and nothing leaks.

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/after_failure.hpp"
#include "engine/drawn_ways.hpp"
#include "engine/trajectory.hpp"
#include "support/expect_error.hpp"
#include "support/seeds.hpp"

namespace outboard::testing {
namespace {

constexpr std::uint64_t kSeeds = 338;
constexpr std::uint64_t kThreadSeeds = 26;
constexpr std::uint64_t kRunsPerSeed = 12;
constexpr std::uint64_t kMostCalls = 500;  // of one kind, in one run
constexpr std::uint64_t kSteps = 5;
constexpr std::uint64_t kChangedStep = 2;
constexpr std::uint32_t kChanged = 4;  // parameter

constexpr std::array<sim::Call, 13> kCalls = {
    sim::Call::copy_to_host,  sim::Call::copy_to_device, sim::Call::copy_on_device,
    sim::Call::kernel,        sim::Call::record,         sim::Call::wait_event,
    sim::Call::notify,        sim::Call::wait_flag,      sim::Call::write_flag,
    sim::Call::allocate,      sim::Call::register_host,  sim::Call::create_event,
    sim::Call::create_stream,
};

/// The call that fails, but for its number.
sim::Fault fault_of(std::uint64_t seed) {
  return {.call = kCalls.at(seed / 2 % kCalls.size()), .at_call = seed % 2 == 0};
}

/// Digests by applied or skipped steps; one more where the trainer has changed a weight.
using Digests = std::map<std::pair<std::uint64_t, bool>, std::uint64_t>;

// --- a run ---------------------------------------------------------------------------------------

class Run {
 public:
  Run(TinyTrainer& trainer, const DrawnWay& way) : trainer_(trainer), way_(way) {}

  /// All steps. `where_` says which call is under way.
  void go() {
    while (trainer_.steps() < kSteps) {
      before_step();
      passes();
      where_ = "step";
      trainer_.finish();
      after_step();
    }
    where_ = "synchronize";
    engine().synchronize();
  }
  [[nodiscard]] const std::string& where() const { return where_; }
  /// Whether it is the step in which Placement::automatic moves.
  [[nodiscard]] bool moves_now() const {
    return where_ == "step" && trainer_.steps() == kWayMove &&
           way_.options.config.placement == Placement::automatic;
  }
  [[nodiscard]] std::pair<std::uint64_t, bool> reached() const {
    return {trainer_.steps(), changed_};
  }

 private:
  Engine& engine() { return trainer_.engine(); }
  [[nodiscard]] bool turn(std::uint64_t which) const {
    return (way_.turns >> (which + 4 * trainer_.steps() % 20) & 1) != 0;
  }
  /// An open gate has begun what it was given; a choice of placement starts again.
  [[nodiscard]] bool may_discard() const {
    const Config& config = way_.options.config;
    return config.schedule != Schedule::open &&
           (config.placement != Placement::automatic || trainer_.steps() > kWayMove);
  }
  void before_step() {
    if (!way_.moves || !turn(0)) return;
    where_ = "set_placement";
    engine().set_placement(way_move(trainer_.options(), trainer_.steps() + way_.turns));
  }
  void pass() {
    where_ = "wait";
    trainer_.forward();
    where_ = "gradient_ready";
    trainer_.backward();
  }
  void passes() {
    if (turn(1) && may_discard()) {
      pass();
      where_ = "discard";
      engine().discard();
    }
    for (std::uint32_t i = 0; i < trainer_.options().passes; ++i) pass();
  }
  void after_step() {
    if (turn(2)) {
      where_ = "read_state";
      std::vector<float> master(5000);
      engine().read_state(trainer_.id(kChanged), "master", master);
    }
    if (turn(3) && may_discard()) {
      where_ = "discard";  // nothing, with updates under way
      engine().discard();
    }
    if (trainer_.steps() != kChangedStep + 1) return;
    where_ = "weights_changed";
    engine().wait(trainer_.id(kChanged), trainer_.reader());
    engine().weights_changed(trainer_.id(kChanged), trainer_.reader());
    changed_ = true;
  }

  TinyTrainer& trainer_;
  const DrawnWay& way_;
  std::string where_ = "commit";
  bool changed_ = false;
};

Digests reference_of(const WayModel& model) {
  TinyTrainer trainer(way_options(model));
  trainer.start();
  Digests out;
  out[{0, false}] = trainer.engine().state_digest();
  bool changed = false;
  while (trainer.steps() < kSteps) {
    trainer.step();
    out[{trainer.steps(), changed}] = trainer.engine().state_digest();
    if (trainer.steps() != kChangedStep + 1) continue;
    trainer.engine().wait(trainer.id(kChanged), trainer.reader());
    trainer.engine().weights_changed(trainer.id(kChanged), trainer.reader());
    changed = true;
    out[{trainer.steps(), changed}] = trainer.engine().state_digest();
  }
  EXPECT_NE((out.at({3, false})), (out.at({3, true}))) << "the change changes nothing";
  return out;
}

// --- what must hold after a failure --------------------------------------------------------------

std::string holdings(const sim::Counters& c) {
  return std::to_string(c.live_allocations) + " allocations, " + std::to_string(c.live_streams) +
         " streams, " + std::to_string(c.live_events) + " events, " +
         std::to_string(c.live_registrations) + " registrations";
}

/// Refuses all, or has exactly the state of the steps that it said were done.
void expect_sound_or_refused(TinyTrainer& trainer, const Digests& digests, const Run& run,
                             const std::string& cause) {
  std::uint64_t digest = 0;
  const std::optional<Error> error = caught([&] { digest = trainer.engine().state_digest(); });
  if (!error) {
    EXPECT_EQ(digest, digests.at(run.reached())) << "after " << run.where();
    return;
  }
  // An open gate has begun a step, which a call of the trainer's own on the device has cut off.
  if (error->code() == ErrorCode::protocol_error &&
      trainer.options().config.schedule == Schedule::open) {
    return;
  }
  expect_named(*error, cause);
  expect_refused(trainer, cause);
}

/// A commit() that fails at a call leaves nothing and may be repeated.
/// @return what it failed with, if it did.
std::optional<Error> commit(TinyTrainer& trainer, const sim::Gpu& gpu, const sim::Fault& fault,
                            const std::string& before) {
  trainer.prepare();
  std::optional<Error> error = caught([&] { trainer.commit(); });
  if (!error) return error;
  expect_named(*error, sim::to_string(fault.call));
  EXPECT_EQ(holdings(gpu.counters()), before) << "right after a commit() that failed";
  if (fault.at_call) trainer.commit();
  return error;
}

/// Of a run without an error.
std::string what_passed(TinyTrainer& trainer) {
  return trainer.engine().stats().moves > 0 ? "nowhere, with an automatic move" : "nowhere";
}

/// @return in which call the fault surfaced, "nowhere..." if in none.
std::string survive(const DrawnWay& way, const sim::Fault& fault, const Digests& digests) {
  TinyOptions options = way.options;
  options.device.faults = {fault};
  const std::string cause = sim::to_string(fault.call);
  const sim::Gpu gpu(options.device);
  std::unique_ptr<TinyTrainer> trainer;
  if (caught([&] { trainer = std::make_unique<TinyTrainer>(gpu, options); })) return "trainer";
  const std::string before = holdings(gpu.counters());
  Run run(*trainer, way);
  std::optional<Error> error = commit(*trainer, gpu, fault, before);
  std::string where = "commit";
  if (!error || fault.at_call) {
    if (const auto failure = caught([&] { run.go(); })) {
      where = run.where();
      expect_named(*failure, cause);
      if (run.moves_now()) where = "step that moves state";
    } else if (!error) {
      where = what_passed(*trainer);
    }
    expect_sound_or_refused(*trainer, digests, run, cause);
  }
  trainer->stop();
  EXPECT_EQ(holdings(gpu.counters()), before);
  return where;
}

/// Runs of one seed, each with another call failing; numbers of calls that are never reached are
/// not tried again.
template <class Met>
void survive_seed(std::uint64_t seed, std::map<WayModel, Digests>& references, const DrawnWay& way,
                  Met met) {
  Digests& digests = references[way.model];
  if (digests.empty()) digests = reference_of(way.model);
  sim::Fault fault = fault_of(seed);
  std::uint64_t limit = kMostCalls;
  for (std::uint64_t run = 0; run < kRunsPerSeed && limit > 0; ++run) {
    fault.nth = 1 + mix_bits(seed, run, 77) % limit;
    SCOPED_TRACE(describe(way.options) + " " + sim::to_string(fault.call) + " " +
                 std::to_string(fault.nth) + (fault.at_call ? " at the call" : " when it runs"));
    const std::string where = survive(way, fault, digests);
    if (where.starts_with("nowhere")) limit = fault.nth - 1;
    met(where);
    if (::testing::Test::HasFailure()) return;
  }
}

using Met = std::map<std::string, std::uint64_t>;

/// How often which call has met a fault.
Met survive_seeds(std::uint64_t seeds, sim::Mode mode, bool& all) {
  std::map<WayModel, Digests> references;
  Met met;
  all = for_each_seed(seeds, [&](std::uint64_t seed) {
    DrawnWay way = draw_way(seed);
    way.options.device.mode = mode;
    if (mode == sim::Mode::threads) way.options.device.max_random_delay = sim::Duration(0);
    survive_seed(seed, references, way, [&](const std::string& where) { met[where] += 1; });
  });
  for (const auto& [where, times] : met) {
    std::printf("%s: %llu\n", where.c_str(), static_cast<unsigned long long>(times));
  }
  return met;
}

TEST(OverlappedFaults, NameTheCallAndLeaveNoHalfOfAStep) {
  bool all = false;
  Met met = survive_seeds(kSeeds, sim::Mode::virtual_time, all);
  if (!all) return;
  for (const char* where :
       {"nowhere", "nowhere, with an automatic move", "commit", "wait", "gradient_ready", "step",
        "step that moves state", "read_state", "weights_changed", "set_placement"}) {
    EXPECT_GE(met[where], 5U) << where;
  }
  EXPECT_GE(met["discard"], 1U) << "it calls the device seldom";
}

TEST(OverlappedFaults, InRealTime) {
  bool all = false;
  Met met = survive_seeds(kThreadSeeds, sim::Mode::threads, all);
  if (!all) return;
  EXPECT_GE(met["step"], 3U);
}

}  // namespace
}  // namespace outboard::testing
