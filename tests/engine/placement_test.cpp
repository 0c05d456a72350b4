// SPDX-License-Identifier: Apache-2.0
/// A share of the state on the device: how finely it is met, what it takes, what is refused, and
/// when its updates run.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "engine/splits.hpp"
#include "engine/trajectory.hpp"
#include "support/expect_error.hpp"

namespace outboard::testing {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

/// One tensor of most of the elements and ten small ones.
TinyOptions one_large(double fraction) {
  TinyOptions options;
  options.device = virtual_device(3);
  options.device.memory_bytes = std::size_t{16} << 20;
  options.config.max_grad_norm = 1.0;
  options.config.loss_scaling.initial_scale = 64.0;
  options.config.bucket_bytes = 8192;
  options.config.host.synthetic_topology = "numa:2 core:1 pu:1";
  options.config.placement = Placement::fraction;
  options.config.device_fraction = fraction;
  add_parameters(options, std::vector<std::uint64_t>(5, 1500));
  add_parameters(options, std::vector<std::uint64_t>(1, 400'000));
  add_parameters(options, std::vector<std::uint64_t>(5, 700));
  options.has_gradient = [](std::uint64_t step, std::uint32_t i) { return step != 1 || i != 5; };
  return options;
}

struct StateBytes {
  std::size_t host = 0, device = 0;
};

StateBytes state_bytes(const MemoryLedger& ledger) {
  StateBytes out;
  for (const LedgerEntry& entry : ledger.entries) {
    if (entry.purpose != "master weight" && !entry.purpose.starts_with("exp_avg")) continue;
    (entry.place == MemoryPlace::device ? out.device : out.host) += entry.bytes;
  }
  return out;
}

TEST(Fraction, IsMetWithinTwoPercentAndChangesNoBit) {
  TinyOptions plain = one_large(0.0);
  plain.config.placement = Placement::host;
  const Trajectory reference = run_trajectory(plain, {.steps = 4});
  const double total = 12.0 * (400'000 + 5 * 1500 + 5 * 700);
  const double pages = 2 * 3 * (4096 + 3 * 4352);  // each node's streams: whole pages, staggered
  for (int tenths = 0; tenths <= 10; ++tenths) {
    const double fraction = tenths * 0.1;
    SCOPED_TRACE(fraction);
    TinyTrainer trainer(one_large(fraction));
    trainer.start();
    const StateBytes bytes = state_bytes(trainer.engine().ledger());
    EXPECT_NEAR(static_cast<double>(bytes.device), fraction * total, 0.02 * total);
    EXPECT_NEAR(static_cast<double>(bytes.host), (1 - fraction) * total, 0.02 * total + pages);
    EXPECT_EQ(bytes.device == 0, tenths == 0);
    EXPECT_EQ(bytes.host == 0, tenths == 10);
    EXPECT_EQ(first_difference(reference, run_trajectory(trainer, {.steps = 4})), "");
  }
}

TEST(Fraction, IsSaid) {
  TinyTrainer none(one_large(0.0));
  none.start();
  EXPECT_NE(none.engine().describe().find("all on the host"), std::string::npos);
  TinyTrainer all(one_large(1.0));
  all.start();
  EXPECT_NE(all.engine().describe().find("all device-resident"), std::string::npos);
  TinyTrainer some(one_large(0.3));
  some.start();
  const std::string text = some.engine().describe();
  for (const char* part :
       {"placement: 102 buckets, 32 device-resident (30.2 % of the state), 70 on the host\n",
        "\nstaging: 70 of 70 slots"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
}

// --- what is refused -----------------------------------------------------------------------------

TEST(Fraction, StaysWithinTheBudgetOrSaysHowMuchIsMissing) {
  TinyOptions options = one_large(0.5);
  TinyTrainer measured(options);
  measured.start();
  const std::size_t needed = state_bytes(measured.engine().ledger()).device;
  options.config.device_budget_bytes = needed;
  {
    TinyTrainer trainer(options);
    const std::size_t before = trainer.gpu().memory().used_bytes;
    trainer.start();
    std::size_t packing = 0;
    for (const LedgerEntry& entry : trainer.engine().ledger().entries) {
      if (entry.purpose == "packed small tensors") packing += entry.bytes;
    }
    // Beside the state only that, the gate's scalars, and what the device rounds up.
    EXPECT_LE(trainer.gpu().memory().used_bytes - before, needed + packing + 1280);
    EXPECT_TRUE(trainer.step().result.applied());
  }
  options.config.device_budget_bytes = needed - 1;
  TinyTrainer trainer(options);
  trainer.prepare();
  const sim::Counters before = trainer.gpu().counters();
  expect_error(ErrorCode::out_of_memory,
               {"0.5", std::to_string(needed), ": 1 bytes short", "budget"},
               [&] { trainer.engine().commit(); });
  EXPECT_EQ(trainer.gpu().counters().live_allocations, before.live_allocations);
  EXPECT_EQ(trainer.gpu().counters().live_events, before.live_events);
}

TEST(Fraction, AllOfItObeysTheBudgetToo) {
  TinyOptions options = one_large(0.0);
  options.config.placement = Placement::device_resident;
  options.config.device_budget_bytes = 100'000;
  TinyTrainer trainer(options);
  trainer.prepare();
  expect_error(ErrorCode::out_of_memory,
               {"device-resident", "device_budget_bytes is 100000", "bytes short", "fraction"},
               [&] { trainer.engine().commit(); });
}

TEST(Fraction, BeyondTheDeviceIsRefusedWithTheAmount) {
  TinyOptions options = one_large(1.0);
  options.device.memory_bytes = std::size_t{3} << 20;
  TinyTrainer trainer(options);
  trainer.prepare();
  const sim::MemoryUse use = trainer.gpu().memory();
  // The gate's scalars of eleven parameters come first.
  const std::string free = std::to_string(use.limit_bytes - use.used_bytes - 512);
  expect_error(ErrorCode::out_of_memory, {free + " of " + std::to_string(use.limit_bytes), "short"},
               [&] { trainer.engine().commit(); });
}

TEST(Fraction, ThatWholeBucketsCannotMakeIsRefused) {
  TinyOptions options = one_large(0.5);
  options.config.bucket_bytes = std::size_t{256} << 10;
  TinyTrainer trainer(options);
  trainer.prepare();
  expect_error(ErrorCode::invalid_config, {"0.5", "within 2 %", "largest bucket", "bucket_bytes"},
               [&] { trainer.engine().commit(); });
}

TEST(Fraction, KeepsWhatIsAddedUpAsAWholeTogether) {
  TinyOptions lamb = one_large(0.5);
  lamb.rules = {{Lamb{.lr = 1e-3}}};
  TinyOptions sums = one_large(0.5);
  sums.config.accumulate = Accumulate::host;
  for (const TinyOptions& options : {lamb, sums}) {
    TinyTrainer trainer(options);
    trainer.prepare();
    expect_error(ErrorCode::invalid_config, {"0.5", "parameter that moves as a whole"},
                 [&] { trainer.engine().commit(); });
    TinyOptions all_but_one = options;
    all_but_one.config.device_fraction = 0.025;
    round_fraction(all_but_one);
    ASSERT_GT(all_but_one.config.device_fraction, 0.0);
    TinyOptions plain = options;
    plain.config.placement = Placement::host;
    plain.config.device_fraction = 0.0;
    EXPECT_EQ(first_difference(run_trajectory(plain, {.steps = 4}),
                               run_trajectory(all_but_one, {.steps = 4})),
              "");
  }
}

TEST(Fraction, NeedsItsPlacementAndARange) {
  Config config;
  config.device_fraction = 0.5;
  expect_error(ErrorCode::invalid_config, {"device_fraction is 0.5", "Placement::fraction"},
               [&] { config.validate(); });
  config.placement = Placement::fraction;
  EXPECT_NO_THROW(config.validate());
  for (const double wrong : {-0.1, 1.1, std::nan("")}) {
    config.device_fraction = wrong;
    expect_error(ErrorCode::invalid_config, {"device_fraction", "0 to 1"},
                 [&] { config.validate(); });
  }
}

/// Half of its only parameter is resident: the gradient is not free before step().
TEST(Fraction, APartlyResidentGradientIsReadWhereItIs) {
  TinyOptions options = one_large(0.5);
  TinyTrainer trainer(options);
  trainer.start();
  trainer.forward();
  trainer.backward();
  expect_error(ErrorCode::protocol_error, {"'w5'", "in part device-resident", "step()"},
               [&] { trainer.engine().wait_gradient_taken(trainer.id(5), trainer.writer()); });
  expect_error(ErrorCode::protocol_error, {"'w0' is device-resident"},
               [&] { trainer.engine().wait_gradient_taken(trainer.id(0), trainer.writer()); });
  trainer.finish();
  EXPECT_NO_THROW(trainer.engine().wait_gradient_taken(trainer.id(5), trainer.writer()));
}

TEST(Fraction, RereadsAWeightOnBothSides) {
  TinyOptions options = one_large(0.5);
  options.groups = {AdamW{.lr = 1e-3}};
  TinyTrainer trainer(options);
  trainer.start();
  trainer.run(2);
  const std::vector<std::uint16_t> ones(400'000, half_from_float(1.0F));
  trainer.engine().wait(trainer.id(5), trainer.reader());
  upload<std::uint16_t>(trainer.gpu(), trainer.weight(5), ones, trainer.reader());
  trainer.engine().weights_changed(trainer.id(5), trainer.reader());
  std::vector<float> master(400'000);
  trainer.engine().read_state(trainer.id(5), "master", master);
  EXPECT_EQ(master, std::vector<float>(400'000, 1.0F));
}

// --- when resident updates run -------------------------------------------------------------------

/// Eight parameters of a bucket each; the host takes 10 ms for one, the device next to nothing.
TinyOptions slow_host(std::uint64_t seed) {
  TinyOptions options;
  options.device = virtual_device(seed);
  options.device.rates.host_elems_per_s = {4096.0 * 100};
  options.device.rates.device_bytes_per_s = 1e9;
  options.config.loss_scaling = {.dynamic = false, .initial_scale = 1.0};
  options.config.bucket_bytes = 8192;
  options.config.placement = Placement::fraction;
  options.config.device_fraction = 0.5;
  options.config.host.synthetic_topology = "numa:1 core:1 pu:1";
  add_parameters(options, std::vector<std::uint64_t>(8, 4096));
  options.digest = false;
  return options;
}

/// Virtual time from step() to the refresh of a parameter.
sim::Duration refresh_time(TinyTrainer& trainer, std::uint32_t parameter) {
  const sim::Duration start = trainer.gpu().now();
  trainer.engine().wait(trainer.id(parameter), trainer.reader());
  trainer.gpu().synchronize(trainer.reader());
  return trainer.gpu().now() - start;
}

TEST(Fraction, ResidentUpdatesDoNotQueueBehindUploadsThatWaitForTheHost) {
  for (const bool memops : {true, false}) {
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
      TinyOptions options = slow_host(seed);
      options.device.stream_memory_ops = memops;
      TinyTrainer trainer(options);
      trainer.start();
      EXPECT_TRUE(trainer.step().result.applied());
      for (std::uint32_t i = 0; i < 4; ++i) {
        EXPECT_LE(refresh_time(trainer, i), milliseconds(1)) << "resident parameter " << i;
      }
      EXPECT_GE(refresh_time(trainer, 4), milliseconds(9)) << "the host had no work";
      // synchronize() covers both.
      trainer.engine().synchronize();
      EXPECT_EQ(refresh_time(trainer, 7), microseconds(0));
    }
  }
}

TEST(Fraction, AHostGradientIsFreeBeforeTheStep) {
  TinyTrainer trainer(slow_host(1));
  trainer.start();
  trainer.forward();
  trainer.backward();
  for (std::uint32_t i = 0; i < 8; ++i) {
    const auto taken = [&] {
      trainer.engine().wait_gradient_taken(trainer.id(i), trainer.writer());
    };
    EXPECT_EQ(caught(taken).has_value(), i < 4) << i;
  }
}

/// With the serial schedule step() itself covers both.
TEST(Fraction, ASerialStepWaitsForBothSides) {
  TinyOptions options = slow_host(1);
  options.device.rates.device_bytes_per_s = 1e6;  // 115 ms for one bucket
  options.config.schedule = Schedule::serial;
  TinyTrainer trainer(options);
  trainer.start();
  EXPECT_TRUE(trainer.step().result.applied());
  for (std::uint32_t i = 0; i < 8; ++i) EXPECT_EQ(refresh_time(trainer, i), microseconds(0));
}

}  // namespace
}  // namespace outboard::testing
