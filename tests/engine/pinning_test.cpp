// SPDX-License-Identifier: Apache-2.0
// Limits on pinned memory as a trainer meets them: a ceiling for one registration, a limit on all,
// a limit of the process. Bits stay, one line says what was wanted, obtained, and what helps.
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/trajectory.hpp"
#include "support/expect_error.hpp"

namespace outboard::testing {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::uint64_t kSteps = 4;

/// Keeps warnings that speak of pinned host memory.
class PinningWarnings {
 public:
  [[nodiscard]] LogSink sink() {
    return [this](LogLevel level, std::string_view line) {
      const std::lock_guard lock(mutex_);
      if (level != LogLevel::warning) return;
      if (line.find("pinned host memory") == std::string_view::npos) return;
      lines_.emplace_back(line);
    };
  }
  [[nodiscard]] std::vector<std::string> lines() {
    const std::lock_guard lock(mutex_);
    return lines_;
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> lines_;
};

void expect_words(const std::string& text, const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    EXPECT_NE(text.find(word), std::string::npos) << word << " in: " << text;
  }
}

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
      PinningWarnings warnings;
      TinyOptions options = cut_model();
      options.config.log = warnings.sink();
      options.device.mode = virtual_time ? sim::Mode::virtual_time : sim::Mode::threads;
      options.device.stream_memory_ops = flags;
      options.device.registration_limit_bytes = kMiB;
      TinyTrainer trainer(std::move(options));
      trainer.start();
      EXPECT_GE(trainer.gpu().counters().live_registrations, 7U);
      EXPECT_EQ(first_difference(expected, run_trajectory(trainer, {.steps = kSteps})), "");
      EXPECT_EQ(trainer.engine().stats().bounce_bytes, 0U);
      EXPECT_TRUE(warnings.lines().empty());
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
    PinningWarnings warnings;
    TinyOptions options = cut_model();
    options.device.pinned_limit_bytes = limit;
    options.config.log = warnings.sink();
    {
      TinyTrainer trainer(options);
      trainer.start();
    }
    ASSERT_EQ(warnings.lines().size(), 1U);
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
    EXPECT_EQ(warnings.lines().size(), 1U);
    EXPECT_TRUE(text.starts_with(warnings.lines()[0])) << text;
    expect_words(text, {"pinned host memory", "wants ", "are pinned", "Config::strict_pinning"});
    EXPECT_EQ(strict.gpu().counters().live_registrations, 0U);
  }
}

TEST(StrictPinning, LeavesFewerSlotsByChoiceAlone) {
  PinningWarnings warnings;
  TinyOptions options = cut_model();
  options.config.pinned_slots = 3;
  options.config.strict_pinning = true;
  options.config.log = warnings.sink();
  TinyTrainer trainer(options);
  trainer.start();
  ASSERT_EQ(warnings.lines().size(), 1U);
  expect_words(warnings.lines()[0], {"raise Config::pinned_slots"});
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

// --- the limit of a process ----------------------------------------------------------------------

/// In a child, so that what it gives up ends with it. @return its exit status.
int in_child(const std::function<int()>& body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    const int status = body();
    std::fflush(nullptr);
    _exit(status);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}

bool give_up_locking(std::uint64_t limit_bytes) {
  const rlimit limit{limit_bytes, limit_bytes};
  if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0) return false;
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {};
  return syscall(SYS_capset, &header, data) == 0;
}

/// 100 MB of weights, and of gradients, of which a step has a few.
TinyOptions hundred_megabytes() {
  TinyOptions options;
  options.device.memory_bytes = std::size_t{256} << 20;
  options.config.max_grad_norm = 1.0;
  options.config.loss_scaling = {.dynamic = false, .initial_scale = 1.0};
  options.config.host.synthetic_topology = "numa:1 core:2 pu:1";
  const std::vector<std::uint64_t> sizes(10, 2'500'000);
  add_parameters(options, sizes);
  for (TinyParameter& parameter : options.parameters) parameter.dtype = DType::f32;
  options.has_gradient = [](std::uint64_t step, std::uint32_t parameter) {
    return (step + parameter) % 5 == 0;
  };
  return options;
}

int train_with_little_locked(std::uint64_t expected_digest) {
  if (!give_up_locking(64 << 10)) return 2;
  PinningWarnings warnings;
  TinyOptions options = hundred_megabytes();
  options.config.log = warnings.sink();
  options.digest = false;
  TinyTrainer trainer(std::move(options));
  trainer.start();
  trainer.run(10);
  EXPECT_EQ(trainer.engine().state_digest(), expected_digest);
  const std::vector<std::string> lines = warnings.lines();
  EXPECT_EQ(lines.size(), 1U);
  for (const std::string& line : lines) {
    std::printf("%s\n", line.c_str());
    expect_words(line, {"staging wants 100", "65536 bytes", "RLIMIT_MEMLOCK", "ulimit -l unlimited",
                        "--ulimit memlock=-1", "LimitMEMLOCK=infinity", "4 more bytes"});
  }
  return ::testing::Test::HasFailure() ? 1 : 0;
}

TEST(LockLimit, SixtyFourKibibytesKeepTheBitsOfAHundredMegabytes) {
  // Both in children: this process keeps no threads that a fork would lose.
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  ASSERT_EQ(in_child([&] {
              TinyOptions options = hundred_megabytes();
              options.digest = false;
              TinyTrainer trainer(std::move(options));
              trainer.start();
              trainer.run(10);
              const std::uint64_t digest = trainer.engine().state_digest();
              return write(pipe_ends[1], &digest, sizeof digest) == sizeof digest ? 0 : 1;
            }),
            0);
  std::uint64_t expected = 0;
  ASSERT_EQ(read(pipe_ends[0], &expected, sizeof expected), static_cast<ssize_t>(sizeof expected));
  close(pipe_ends[0]);
  close(pipe_ends[1]);
  const int status = in_child([&] { return train_with_little_locked(expected); });
  if (status == 2) GTEST_SKIP() << "this process may not lower its limit";
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace outboard::testing
