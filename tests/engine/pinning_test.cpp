// SPDX-License-Identifier: Apache-2.0
// Limits on pinned memory as a trainer meets them: a ceiling for one registration, a limit on all.
// Bits stay, one line says what was wanted, obtained, and what helps.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "engine/trajectory.hpp"
#include "support/expect_error.hpp"
#include "support/log_lines.hpp"

namespace outboard::testing {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::uint64_t kSteps = 4;
/// What warnings of too little pinned memory hold.
const std::string kPinned = "pinned host memory";

/// 7 MiB of gradients in buckets of 768 KiB, which no border of 1 MiB leaves alone.
TinyOptions cut_model() {
  TinyOptions options;
  options.device.memory_bytes = std::size_t{64} << 20;
  options.config.max_grad_norm = 1.0;
  options.config.loss_scaling = {.initial_scale = 64.0, .growth_interval = 2};
  options.config.bucket_bytes = 768 << 10;
  options.config.host.threads_per_node = 1;
  options.config.host.synthetic_topology = "numa:1 core:1 pu:1";
  const std::uint64_t sizes[] = {1'500'000, 400'000, 64, 700, 1'000'000, 393'216, 360'000};
  add_parameters(options, sizes);
  return options;
}

TEST(Ceiling, RegistrationsOfAMebibyteChangeNoBit) {
  const Trajectory expected = run_trajectory(cut_model(), {.steps = kSteps});
  for (const bool virtual_time : {false, true}) {
    for (const bool flags : {false, true}) {
      SCOPED_TRACE(std::string(virtual_time ? "virtual" : "threads") + (flags ? ", flags" : ""));
      LogLines log;
      TinyOptions options = cut_model();
      options.config.log = log.sink();
      options.device.mode = virtual_time ? sim::Mode::virtual_time : sim::Mode::threads;
      options.device.stream_memory_ops = flags;
      options.device.registration_limit_bytes = kMiB;
      TinyTrainer trainer(std::move(options));
      trainer.start();
      EXPECT_GE(trainer.gpu().counters().live_registrations, 7U);
      EXPECT_EQ(first_difference(expected, run_trajectory(trainer, {.steps = kSteps})), "");
      EXPECT_EQ(trainer.engine().stats().bounce_bytes, 0U);
      EXPECT_TRUE(log.warning_lines({kPinned}).empty());
      // More pieces than the engine has asked for copies: some were cut.
      const sim::Counters counters = trainer.gpu().counters();
      const StepStats stats = trainer.engine().stats();
      EXPECT_GT(counters.copies_to_device, stats.copies_up + trainer.options().parameters.size());
      trainer.stop();
      EXPECT_EQ(trainer.gpu().counters().live_registrations, 0U);
    }
  }
}

TEST(Ceiling, AMoveOfStateThroughCutStagingKeepsTheBits) {
  const auto run = [](std::size_t ceiling) {
    TinyOptions options = cut_model();
    options.device.mode = sim::Mode::virtual_time;
    options.device.registration_limit_bytes = ceiling;
    TinyTrainer trainer(std::move(options));
    trainer.start();
    Trajectory out = run_trajectory(trainer, {.steps = 2});
    trainer.engine().set_placement({.placement = Placement::device_resident});
    append(out, run_trajectory(trainer, {.steps = 2}));
    trainer.engine().set_placement({.placement = Placement::host});
    append(out, run_trajectory(trainer, {.steps = 2}));
    return out;
  };
  EXPECT_EQ(first_difference(run(SIZE_MAX), run(kMiB)), "");
}

TEST(StrictPinning, IsAnErrorWithWhatTheWarningSays) {
  for (const std::size_t limit : {std::size_t{0}, std::size_t{5} * 768 << 10}) {
    LogLines log;
    TinyOptions options = cut_model();
    options.device.pinned_limit_bytes = limit;
    options.config.log = log.sink();
    {
      TinyTrainer trainer(options);
      trainer.start();
    }
    ASSERT_EQ(log.warning_lines({kPinned}).size(), 1U);
    options.config.strict_pinning = true;
    TinyTrainer strict(options);
    strict.prepare();
    std::string text;
    try {
      strict.engine().commit();
      ADD_FAILURE() << "committed with a limit of " << limit;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
      text = error.what();
    }
    std::printf("%s\n", text.c_str());
    EXPECT_EQ(log.warning_lines({kPinned}).size(), 1U);
    EXPECT_TRUE(text.starts_with(log.warning_lines({kPinned})[0])) << text;
    expect_words(text, {"pinned host memory", "wants ", "are pinned", "Config::strict_pinning"});
    EXPECT_EQ(strict.gpu().counters().live_registrations, 0U);
  }
}

TEST(StrictPinning, LeavesFewerSlotsByChoiceAlone) {
  LogLines log;
  TinyOptions options = cut_model();
  options.config.pinned_slots = 3;
  options.config.strict_pinning = true;
  options.config.log = log.sink();
  TinyTrainer trainer(options);
  trainer.start();
  ASSERT_EQ(log.warning_lines({kPinned}).size(), 1U);
  expect_words(log.warning_lines({kPinned})[0], {"raise Config::pinned_slots"});
}

TEST(StrictPinning, ALaterCommitThatFailsChangesNothing) {
  TinyOptions options = cut_model();
  options.config.strict_pinning = true;
  options.device.pinned_limit_bytes = 8 * kMiB;
  TinyTrainer trainer(options);
  trainer.start();
  const std::uint64_t registrations = trainer.gpu().counters().live_registrations;
  void* const weight = trainer.gpu().allocate(4 * kMiB);
  trainer.gpu().synchronize();
  (void)trainer.engine().add_parameter({.name = "late",
                                        .dtype = DType::f16,
                                        .elems = 2 * kMiB,
                                        .data = weight,
                                        .group = trainer.group(0)});
  expect_error(ErrorCode::out_of_memory, {"pinned host memory", "'late'"},
               [&] { trainer.engine().commit(); });
  EXPECT_EQ(trainer.gpu().counters().live_registrations, registrations);
  EXPECT_TRUE(trainer.step().result.applied());
}

}  // namespace
}  // namespace outboard::testing
