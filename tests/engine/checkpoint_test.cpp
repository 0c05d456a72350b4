// SPDX-License-Identifier: Apache-2.0
// A run that is saved and goes on elsewhere is bit for bit the run that was never interrupted.
#include <gtest/gtest.h>

#include <optional>

#include "engine/checkpoint_models.hpp"
#include "support/seeds.hpp"
#include "support/temporary_folder.hpp"

namespace outboard {
namespace {

using namespace testing;

constexpr std::uint64_t kSteps = 10;

std::vector<TinyTrainer::State> all_state(TinyTrainer& trainer) {
  std::vector<TinyTrainer::State> all;
  for (std::uint32_t i = 0; i < trainer.in_use(); ++i) all.push_back(trainer.state(i));
  return all;
}

/// A model whose own weights are not those of the run.
TinyOptions with_other_weights(TinyOptions options) {
  for (TinyParameter& parameter : options.parameters) {
    parameter.initial.assign(static_cast<std::size_t>(parameter.elems), 0.25F);
    parameter.give_master = false;
  }
  return options;
}

TEST(Checkpoint, ResumesBitForBitOnAnyMachine) {
  for_each_seed(48, [](std::uint64_t seed) {
    const TinyOptions model = model_of(seed);
    TinyTrainer straight(model);
    straight.start();
    const Trajectory expected = run_trajectory(straight, {.steps = kSteps});

    const TemporaryFolder folder;
    const std::uint64_t before = 1 + seed % (kSteps - 1);
    const TinyOptions first = elsewhere(model, seed);
    SCOPED_TRACE(describe(first));
    Trajectory seen;
    {
      TinyTrainer trainer(first);
      trainer.start();
      append(seen, run_trajectory(trainer, {.steps = before}));
      const SaveReport report = trainer.engine().save(folder.path("run"));
      EXPECT_EQ(report.digest, trainer.engine().state_digest());
    }
    const TinyOptions second = with_other_weights(elsewhere(model, seed + 1000));
    SCOPED_TRACE(describe(second));
    TinyTrainer trainer(second);
    trainer.start();
    const LoadReport report = trainer.engine().load(folder.path("run"));
    EXPECT_EQ(report.steps, before);
    trainer.continue_at(before);
    append(seen, run_trajectory(trainer, {.steps = kSteps - before}));
    EXPECT_EQ(first_difference(expected, seen), "");
    EXPECT_TRUE(all_state(straight) == all_state(trainer));
    EXPECT_EQ(straight.engine().stats().steps_applied, trainer.engine().stats().steps_applied);
    EXPECT_EQ(straight.engine().stats().steps_skipped, trainer.engine().stats().steps_skipped);
    EXPECT_EQ(straight.engine().loss_scale(), trainer.engine().loss_scale());
  });
}

TEST(Checkpoint, IsTheSameFromAnyMachine) {
  const TemporaryFolder folder;
  std::optional<SaveReport> first;
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    TinyTrainer trainer(elsewhere(model_of(8), seed));
    trainer.start();
    trainer.run(5);
    const SaveReport report = trainer.engine().save(folder.path("run"), {.keep_last = 0});
    if (!first) first = report;
    EXPECT_EQ(first->bytes, report.bytes);
    EXPECT_EQ(first->digest, report.digest);
  }
}

/// The same steps under each schedule and with sums of micro-batches.
class Resume : public ::testing::TestWithParam<Schedule> {};

TEST_P(Resume, WithMicroBatchesAndChangingSettings) {
  TinyOptions options = small_model();
  options.config.schedule = GetParam();
  options.config.accumulate = Accumulate::host;
  options.config.accumulation = options.passes = 3;
  if (GetParam() == Schedule::open) {
    options.config.max_grad_norm = 0.0;
    options.config.loss_scaling = {.dynamic = false, .initial_scale = 64.0};
  }
  const auto schedule = [](TinyTrainer& trainer) {
    const double lr = 1e-2 / static_cast<double>(1 + trainer.steps());
    trainer.engine().set_group(trainer.group(0), AdamW{.lr = lr, .weight_decay = 0.1});
  };
  const auto run = [&](TinyTrainer& trainer, std::uint64_t steps) {
    Trajectory out;
    for (std::uint64_t i = 0; i < steps; ++i) {
      schedule(trainer);
      append(out, run_trajectory(trainer, {.steps = 1}));
    }
    return out;
  };
  TinyTrainer straight(options);
  straight.start();
  const Trajectory expected = run(straight, kSteps);
  const TemporaryFolder folder;
  Trajectory seen;
  {
    TinyTrainer trainer(options);
    trainer.start();
    append(seen, run(trainer, 5));
    trainer.engine().save(folder.path("run"));
  }
  TinyTrainer trainer(with_other_weights(options));
  trainer.start();
  trainer.engine().load(folder.path("run"));
  trainer.continue_at(5);
  append(seen, run(trainer, 5));
  EXPECT_EQ(first_difference(expected, seen), "");
  EXPECT_TRUE(all_state(straight) == all_state(trainer));
}

INSTANTIATE_TEST_SUITE_P(Schedules, Resume,
                         ::testing::Values(Schedule::exact, Schedule::blocking, Schedule::open,
                                           Schedule::serial),
                         [](const auto& tested) { return name_of(tested.param); });

TEST(Checkpoint, IsThereBeforeTheFirstStepAndAfterASecondLoad) {
  const TemporaryFolder folder;
  TinyTrainer saved(model_of(0));
  saved.start();
  saved.run(5);
  saved.engine().save(folder.path("run"));
  const auto expected = all_state(saved);
  TinyTrainer loaded(with_other_weights(model_of(0)));
  loaded.start();
  loaded.engine().load(folder.path("run"));
  EXPECT_TRUE(all_state(loaded) == expected);
  loaded.engine().load(folder.path("run"));
  EXPECT_TRUE(all_state(loaded) == expected);
  EXPECT_EQ(loaded.engine().state_digest(), saved.engine().state_digest());
}

/// What the device has fetched of the next step's state is of the past then.
TEST(Checkpoint, GoesBackInARunThatGoesOn) {
  for (const Placement placement : {Placement::host, Placement::device_resident,
                                    Placement::device_streamed, Placement::automatic}) {
    for (const Schedule schedule :
         {Schedule::exact, Schedule::blocking, Schedule::open, Schedule::serial}) {
      if (placement == Placement::automatic && schedule == Schedule::open) continue;
      TinyOptions options = small_model();
      options.config.placement = placement;
      options.config.schedule = schedule;
      options.config.loss_scaling = {.dynamic = false, .initial_scale = 1.0};
      options.config.max_grad_norm = 0.0;
      options.injected.clear();
      SCOPED_TRACE("placement " + std::to_string(static_cast<int>(placement)) + " " +
                   name_of(schedule));
      const TemporaryFolder folder;
      TinyTrainer trainer(options);
      trainer.start();
      trainer.run(4);
      trainer.engine().save(folder.path("run"));
      const Trajectory expected = run_trajectory(trainer, {.steps = 4});
      trainer.engine().load(folder.path("run"));
      trainer.continue_at(4);
      EXPECT_EQ(first_difference(expected, run_trajectory(trainer, {.steps = 4})), "");
    }
  }
}

TEST(Checkpoint, WithRealThreads) {
  TinyOptions options = small_model();
  options.device.mode = sim::Mode::threads;
  options.config.host.threads_per_node = 2;
  TinyTrainer straight(options);
  straight.start();
  const Trajectory expected = run_trajectory(straight, {.steps = kSteps});
  const TemporaryFolder folder;
  Trajectory seen;
  TinyTrainer first(options);
  first.start();
  append(seen, run_trajectory(first, {.steps = 5}));
  first.engine().save(folder.path("run"));
  first.stop();
  TinyTrainer second(with_other_weights(options));
  second.start();
  second.engine().load(folder.path("run"));
  second.continue_at(5);
  append(seen, run_trajectory(second, {.steps = 5}));
  EXPECT_EQ(first_difference(expected, seen), "");
}

}  // namespace
}  // namespace outboard
