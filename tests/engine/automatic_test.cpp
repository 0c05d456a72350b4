// SPDX-License-Identifier: Apache-2.0
/// Placement::automatic on the virtual clock: what it chooses is never slower than all on the host,
/// stays within the budget, changes no bit, and changes again only when steps do.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "engine/drawn_options.hpp"
#include "engine/timed_steps.hpp"
#include "engine/trajectory.hpp"
#include "support/expect_error.hpp"
#include "support/log_lines.hpp"

namespace outboard::testing {
namespace {

constexpr std::uint64_t kWarmSteps = 6;  // two are watched, the third moves state
constexpr std::uint64_t kMeasuredSteps = 8;

struct Speeds {
  std::uint64_t seed = 1;
  double forward_ns = 20.0, backward_ns = 40.0;  // of one element
  double link_ns = 4.0;                          // each way, of one element
  double update_ns = 30.0;                       // of all nodes together
  double device_update_ns = 1.0;
  std::uint32_t micro_batches = 0;  ///< that the engine adds up
};

/// 24 parameters of up to three buckets.
TinyOptions model_of(const Speeds& speeds) {
  TinyOptions options;
  options.device = virtual_device(speeds.seed);
  options.device.memory_bytes = std::size_t{32} << 20;
  sim::Rates& rates = options.device.rates;
  rates.link_down_bytes_per_s = rates.link_up_bytes_per_s = 2e9 / speeds.link_ns;
  rates.device_bytes_per_s = 28e9 / speeds.device_update_ns;
  rates.copy_latency = sim::Duration(2000);
  const std::size_t nodes = 1 + speeds.seed % 2;
  rates.host_elems_per_s.assign(nodes, 1e9 / speeds.update_ns / static_cast<double>(nodes));
  options.config.loss_scaling = {.dynamic = false, .initial_scale = 1.0};
  options.config.max_grad_norm = 1.0;
  options.config.bucket_bytes = 8192;
  options.config.host.threads_per_node = 1;
  options.config.host.synthetic_topology = "numa:" + std::to_string(nodes) + " core:1 pu:1";
  std::vector<std::uint64_t> sizes;
  for (std::uint64_t i = 0; i < 24; ++i) {
    sizes.push_back(1 + mix_bits(speeds.seed, i, 9) % 12'000);
  }
  add_parameters(options, sizes);
  for (const std::uint64_t elems : sizes) {
    const auto n = static_cast<double>(elems);
    options.forward_each.emplace_back(std::llround(n * speeds.forward_ns));
    options.backward_each.emplace_back(std::llround(n * speeds.backward_ns));
  }
  options.digest = false;
  if (speeds.micro_batches == 0) return options;
  options.config.accumulate = Accumulate::host;
  options.config.accumulation = options.passes = speeds.micro_batches;
  return options;
}

struct Measured {
  double step_us = 0.0;  ///< mean, from one end of forward to another
  StepStats stats;
  std::size_t most_state_bytes = 0;
};

std::size_t state_bytes(const Engine& engine) {
  std::size_t bytes = 0;
  for (const LedgerEntry& entry : engine.ledger().entries) {
    const bool other = entry.purpose == "gate scalars" || entry.purpose == "packed small tensors";
    if (entry.place == MemoryPlace::device && !other) bytes += entry.bytes;
  }
  return bytes;
}

Measured measure(const TinyOptions& options) {
  TinyTrainer trainer(options);
  trainer.start();
  Measured run;
  const auto ends = forward_ends(trainer, kWarmSteps + kMeasuredSteps, [&] {
    run.most_state_bytes = std::max(run.most_state_bytes, state_bytes(trainer.engine()));
  });
  run.step_us = mean_step_us(ends, kWarmSteps);
  run.stats = trainer.engine().stats();
  return run;
}

TinyOptions automatic(TinyOptions options) {
  options.config.placement = Placement::automatic;
  return options;
}

// --- how good it is ------------------------------------------------------------------------------

Speeds drawn_speeds(std::uint64_t seed, std::uint32_t micro_batches) {
  return {.seed = seed,
          .forward_ns = between(5, 50, seed, 1),
          .backward_ns = between(10, 90, seed, 2),
          .link_ns = between(2, 60, seed, 3),
          .update_ns = between(5, 70, seed, 4),
          .device_update_ns = between(0.5, 30, seed, 6),
          .micro_batches = micro_batches};
}

/// `draw`: the speeds of a model, by its seed.
template <class DrawSpeeds>
void expect_never_slower_than_host(std::uint64_t models, DrawSpeeds draw) {
  double worst = 0.0;
  double best = 1e9;
  for (std::uint64_t seed = 1; seed <= models; ++seed) {
    const Speeds speeds = draw(seed);
    TinyOptions options = model_of(speeds);
    const double host_us = measure(options).step_us;
    options = automatic(options);
    const std::array<std::size_t, 3> budgets = {0, 500'000, SIZE_MAX};
    options.config.device_budget_bytes = budgets.at(seed % budgets.size());
    const Measured seen = measure(options);
    SCOPED_TRACE("seed " + std::to_string(seed) + ", " +
                 std::to_string(seen.stats.device_fraction) + " of the state on the device");
    EXPECT_LE(seen.step_us, 1.02 * host_us);
    EXPECT_LE(seen.most_state_bytes, options.config.device_budget_bytes);
    EXPECT_GT(seen.stats.predicted_step_us, 0.0);
    EXPECT_NEAR(seen.stats.predicted_step_us, seen.step_us, 0.03 * seen.step_us);
    EXPECT_NEAR(seen.stats.measured_step_us, seen.step_us, 0.05 * seen.step_us);
    EXPECT_LE(seen.stats.moves, 1U);
    worst = std::max(worst, seen.step_us / host_us);
    best = std::min(best, seen.step_us / host_us);
  }
  std::printf("%d models: %.4f to %.4f of the step with all on the host\n",
              static_cast<int>(models), best, worst);
}

TEST(Automatic, IsNeverSlowerThanAllOnTheHost) {
  expect_never_slower_than_host(30, [](std::uint64_t seed) { return drawn_speeds(seed, 0); });
}

TEST(Automatic, IsNeverSlowerThanAllOnTheHostWithSumsInTheEngine) {
  expect_never_slower_than_host(15, [](std::uint64_t seed) {
    return drawn_speeds(seed, 1 + static_cast<std::uint32_t>(seed % 4));
  });
}

TEST(Automatic, IsAQuarterFasterWhereTheHostLimitsAndTheDeviceHasRoom) {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    const Speeds speeds{.seed = seed, .update_ns = 90.0};
    const double host_us = measure(model_of(speeds)).step_us;
    const Measured seen = measure(automatic(model_of(speeds)));
    EXPECT_GE(host_us / seen.step_us, 1.25) << "seed " << seed;
    EXPECT_EQ(seen.stats.moves, 1U);
    EXPECT_GT(seen.stats.device_fraction, 0.2);
  }
}

TEST(Automatic, LeavesAllOnTheHostWhereItIsHidden) {
  const Measured seen = measure(automatic(model_of({.update_ns = 2.0, .device_update_ns = 20.0})));
  EXPECT_EQ(seen.stats.moves, 0U);
  EXPECT_EQ(seen.stats.device_fraction, 0.0);
  EXPECT_GT(seen.stats.predicted_step_us, 0.0);
}

/// Nothing measures a node that gets no bucket, and it is no instant one.
TEST(Automatic, ANodeWithoutABucketIsAsIfItWereNotThere) {
  for (const std::uint64_t seed : {2U, 4U, 6U}) {
    const TinyOptions one = automatic(model_of({.seed = seed, .update_ns = 90.0}));
    TinyOptions two = one;
    two.config.host.synthetic_topology = "numa:2 core:1 pu:1";
    two.device.rates.host_elems_per_s.push_back(1.0);
    const Measured alone = measure(one);
    const Measured seen = measure(two);
    EXPECT_GT(alone.stats.device_fraction, 0.0);
    EXPECT_EQ(seen.stats.device_fraction, alone.stats.device_fraction) << "seed " << seed;
    EXPECT_EQ(seen.stats.predicted_step_us, alone.stats.predicted_step_us) << "seed " << seed;
  }
}

// --- what it may not change ----------------------------------------------------------------------

void expect_no_bit_changes(std::uint64_t seed, std::uint32_t micro_batches) {
  TinyOptions options = model_of({.seed = seed, .update_ns = 90.0, .micro_batches = micro_batches});
  options.injected = {{.step = 1 + seed % 6, .parameter = 3, .element = 0}};
  options.has_gradient = [](std::uint64_t step, std::uint32_t i) { return i != 5 || step != 4; };
  const Trajectory reference = run_trajectory(options, {.steps = 9});
  options = automatic(options);
  options.config.check_waits = seed % 2 == 0;
  options.device.stream_memory_ops = seed % 3 != 0;
  if (seed % 4 == 0) options.config.pinned_slots = 3;
  if (seed % 5 == 0) options.config.schedule = Schedule::serial;
  if (seed % 5 == 1) options.config.schedule = Schedule::blocking;
  if (seed % 6 == 0) options.device.max_random_delay = sim::Duration(20'000);
  if (seed % 7 == 0) options.device.mode = sim::Mode::threads;
  options.second_stream = seed % 2 == 1;
  TinyTrainer trainer(options);
  trainer.start();
  const Trajectory seen = run_trajectory(trainer, {.steps = 9, .digests = mix_bits(seed, 1, 1)});
  EXPECT_EQ(first_difference(reference, seen), "") << "seed " << seed;
  if (options.device.mode == sim::Mode::virtual_time) {
    EXPECT_EQ(trainer.engine().stats().moves, 1U) << "seed " << seed;
  }
}

TEST(Automatic, ChangesNoBit) {
  for (std::uint64_t seed = 1; seed <= 24; ++seed) expect_no_bit_changes(seed, 0);
}

TEST(Automatic, ChangesNoBitOfSumsInTheEngine) {
  for (std::uint64_t seed = 1; seed <= 24; ++seed) {
    expect_no_bit_changes(seed, 1 + static_cast<std::uint32_t>(seed % 3));
  }
}

// --- planning again ------------------------------------------------------------------------------

/// Makes the trainer's own work so many times shorter.
void speed_up(TinyOptions& options, std::int64_t times) {
  for (auto* each : {&options.forward_each, &options.backward_each}) {
    for (sim::Duration& duration : *each) duration /= times;
  }
}

TEST(Automatic, PlansAgainWhenStepsChangeForAWhile) {
  // The host hides behind long work at first, and no longer when the work gets short.
  const Speeds slow{.forward_ns = 80.0, .backward_ns = 160.0};
  TinyOptions options = automatic(model_of(slow));
  LogLines log;
  options.config.log = log.sink();
  TinyTrainer trainer(options);
  trainer.start();
  trainer.run(12);
  const StepStats before = trainer.engine().stats();
  speed_up(trainer.options(), 40);
  trainer.run(1);
  trainer.options().forward_each = options.forward_each;  // one odd step is not enough
  trainer.options().backward_each = options.backward_each;
  trainer.run(12);
  EXPECT_EQ(trainer.engine().stats().moves, before.moves);
  speed_up(trainer.options(), 40);
  trainer.run(30);
  const StepStats after = trainer.engine().stats();
  EXPECT_EQ(after.moves, before.moves + 1);
  EXPECT_GT(after.device_fraction, before.device_fraction);
  EXPECT_NEAR(after.predicted_step_us, after.measured_step_us, 0.1 * after.measured_step_us);
  const std::vector<std::string> lines = log.texts();
  const auto told = std::ranges::count_if(lines, [](const std::string& line) {
    return line.starts_with("placement: automatic, ") && line.find("step") != std::string::npos;
  });
  EXPECT_EQ(static_cast<std::uint64_t>(told), after.moves) << log.all();
}

/// The device's memory is in pieces when the second move is due: it ends with all on the host, and
/// the next prediction is of that.
TEST(Automatic, PredictsWhereAMoveWithoutMemoryHasLeftTheState) {
  const Speeds speeds{.forward_ns = 80.0, .backward_ns = 160.0, .update_ns = 400.0};
  TinyOptions options = automatic(model_of(speeds));
  options.device.memory_bytes = std::size_t{8} << 20;
  TinyTrainer trainer(options);
  trainer.start();
  trainer.run(8);
  const double share = trainer.engine().stats().device_fraction;
  ASSERT_GT(share, 0.0);
  ASSERT_LT(share, 1.0) << "a second move has nothing to do";
  const auto pieces = leave_pieces(trainer.gpu(), std::size_t{8} << 10);
  speed_up(trainer.options(), 40);
  std::uint64_t steps = 0;
  while (trainer.engine().stats().device_fraction > 0.0 && steps < 40) {
    trainer.run(1);
    ++steps;
  }
  ASSERT_EQ(trainer.engine().stats().device_fraction, 0.0) << "no move was tried";
  const double predicted_us = trainer.engine().stats().predicted_step_us;
  trainer.run(4);
  EXPECT_EQ(trainer.engine().stats().predicted_step_us, predicted_us);
  EXPECT_NEAR(trainer.engine().stats().measured_step_us, predicted_us, 0.05 * predicted_us);
}

TEST(Automatic, StaysWhereItIsWhileStepsStayAsTheyAre) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    TinyTrainer trainer(automatic(model_of({.seed = seed, .update_ns = 90.0})));
    trainer.start();
    trainer.run(80);
    EXPECT_EQ(trainer.engine().stats().moves, 1U) << "seed " << seed;
  }
}

/// A skipped step is shorter than one whose updates the next forward waits for. Every other one is
/// skipped here, so that each lies next to one that is not.
TEST(Automatic, TakesNoSampleNextToASkippedStep) {
  TinyOptions options = automatic(model_of({.update_ns = 90.0}));
  options.config.device_budget_bytes = 0;
  for (std::uint64_t step = 10; step < 34; step += 2) {
    options.injected.push_back({.step = step, .parameter = 3});
  }
  TinyTrainer trainer(options);
  trainer.start();
  trainer.run(10);
  const double predicted_us = trainer.engine().stats().predicted_step_us;
  const sim::Duration start = trainer.gpu().now();
  for (std::uint64_t s = 10; s < 34; ++s) {
    EXPECT_EQ(trainer.step().result.skipped(), s % 2 == 0);
    const double measured_us = trainer.engine().stats().measured_step_us;
    EXPECT_NEAR(measured_us, predicted_us, 0.03 * predicted_us) << s;
  }
  const auto mean_us = static_cast<double>((trainer.gpu().now() - start).count()) * 1e-3 / 24;
  EXPECT_LT(mean_us, 0.9 * predicted_us) << "nothing was tried";
}

/// The trainer takes the device's memory between two moves.
TEST(Automatic, LeavesTheTrainerATwentiethOfTheDevice) {
  TinyOptions options = automatic(model_of({.update_ns = 90.0}));
  TinyTrainer trainer(options);
  const sim::MemoryUse use = trainer.gpu().memory();
  const std::size_t left = (std::size_t{2} << 20);
  const DeviceBuffer hog(trainer.gpu(), use.limit_bytes - use.used_bytes - left);
  trainer.start();
  trainer.run(8);
  EXPECT_EQ(trainer.engine().stats().moves, 1U);
  EXPECT_LE(trainer.gpu().memory().used_bytes, use.limit_bytes - use.limit_bytes / 20);
}

// --- calls ---------------------------------------------------------------------------------------

TEST(Automatic, IsOneOfThePlacementsToMoveTo) {
  TinyOptions options = model_of({.update_ns = 90.0});
  const Trajectory reference = run_trajectory(options, {.steps = 12});
  options.config.placement = Placement::device_resident;
  options.config.keep_host_room = true;
  TinyTrainer trainer(options);
  trainer.start();
  Trajectory seen = run_trajectory(trainer, {.steps = 2});
  trainer.engine().set_placement({.placement = Placement::automatic});
  EXPECT_EQ(trainer.engine().stats().device_fraction, 0.0);
  append(seen, run_trajectory(trainer, {.steps = 6}));
  const StepStats stats = trainer.engine().stats();
  EXPECT_EQ(stats.moves, 1U);
  EXPECT_GT(stats.device_fraction, 0.2);
  EXPECT_LT(stats.device_fraction, 1.0 + 1e-9);
  trainer.engine().set_placement({.placement = Placement::host});
  append(seen, run_trajectory(trainer, {.steps = 4}));
  EXPECT_EQ(trainer.engine().stats().device_fraction, 0.0);
  EXPECT_EQ(trainer.engine().stats().predicted_step_us, 0.0);
  EXPECT_EQ(first_difference(reference, seen), "");
}

/// From the first step on, or a trainer would fail after the first move.
TEST(Automatic, FreesNoGradientBeforeTheStep) {
  TinyTrainer trainer(automatic(model_of({})));
  trainer.start();
  trainer.forward();
  trainer.backward();
  expect_error(ErrorCode::protocol_error, {"'w0'", "may become device-resident", "step()"},
               [&] { trainer.engine().wait_gradient_taken(trainer.id(0), trainer.writer()); });
  trainer.finish();
  EXPECT_NO_THROW(trainer.engine().wait_gradient_taken(trainer.id(0), trainer.writer()));
}

/// A sum takes the gradient, wherever it is.
TEST(Automatic, FreesGradientsOfSumsBeforeTheStep) {
  TinyOptions options = automatic(model_of({.update_ns = 90.0, .micro_batches = 2}));
  options.gradient_ring = 3;
  TinyTrainer trainer(options);
  trainer.start();
  trainer.run(8);
  EXPECT_EQ(trainer.engine().stats().moves, 1U);
  EXPECT_GT(trainer.engine().stats().device_fraction, 0.2);
}

/// The last step of an epoch may have fewer micro-batches; one such step moves nothing.
TEST(Automatic, BearsAStepOfFewerMicroBatches) {
  TinyTrainer trainer(automatic(model_of({.update_ns = 90.0, .micro_batches = 4})));
  trainer.start();
  trainer.run(10);
  const StepStats before = trainer.engine().stats();
  for (int epoch = 0; epoch < 3; ++epoch) {
    trainer.engine().set_accumulation(1);
    trainer.options().passes = 1;
    trainer.run(1);
    trainer.engine().set_accumulation(4);
    trainer.options().passes = 4;
    trainer.run(6);
  }
  const StepStats after = trainer.engine().stats();
  EXPECT_EQ(after.moves, before.moves);
  EXPECT_EQ(after.predicted_step_us, before.predicted_step_us);
  EXPECT_NEAR(after.measured_step_us, after.predicted_step_us, 0.03 * after.predicted_step_us);
}

/// A pass whose gradients were dropped is none of the two steps that are watched.
TEST(Automatic, PlansWithoutTheTimesOfADroppedPass) {
  TinyTrainer trainer(automatic(model_of({.update_ns = 90.0})));
  trainer.start();
  const auto stats = [&] { return trainer.engine().stats(); };
  trainer.run(1);
  trainer.forward();
  trainer.backward();
  trainer.engine().discard();
  for (int i = 0; i < 8 && stats().predicted_step_us == 0.0; ++i) trainer.step();
  const double predicted_us = stats().predicted_step_us;
  trainer.run(3);
  EXPECT_EQ(stats().moves, 1U);
  EXPECT_NEAR(predicted_us, stats().measured_step_us, 0.03 * stats().measured_step_us);
}

/// A trainer that waits for nothing shows no forward: there is nothing to plan with.
TEST(Automatic, WithoutWaitsStaysOnTheHost) {
  TinyOptions options = automatic(model_of({.update_ns = 90.0}));
  options.config.schedule = Schedule::blocking;
  options.wait = false;
  TinyTrainer trainer(options);
  trainer.start();
  trainer.run(6);
  EXPECT_EQ(trainer.engine().stats().moves, 0U);
  EXPECT_EQ(trainer.engine().stats().predicted_step_us, 0.0);
}

}  // namespace
}  // namespace outboard::testing
