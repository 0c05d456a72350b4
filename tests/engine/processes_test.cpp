// SPDX-License-Identifier: Apache-2.0
// Engines in processes of their own: under a limit on locked memory, and several beside each other.
// This process starts no engine, whose threads a fork would lose.
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "engine/trajectory.hpp"
#include "support/expect_error.hpp"
#include "support/log_lines.hpp"

namespace outboard::testing {
namespace {

pid_t start_child(const std::function<int()>& body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child != 0) return child;
  int status = 1;
  try {
    status = body();
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
  }
  std::fflush(nullptr);
  _exit(status);
}

/// @return the child's exit status, or -1.
int end_of(pid_t child) {
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}

// --- a limit on locked memory --------------------------------------------------------------------

bool give_up_locking(std::uint64_t limit_bytes) {
  const rlimit limit{limit_bytes, limit_bytes};
  if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0) return false;
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, 2> none{};
  return syscall(SYS_capset, &header, none.data()) == 0;
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
  options.digest = false;
  return options;
}

std::uint64_t digest_of_ten_steps(const TinyOptions& options) {
  TinyTrainer trainer(options);
  trainer.start();
  trainer.run(10);
  return trainer.engine().state_digest();
}

constexpr int kMayNot = 2;
/// What warnings of too little pinned memory hold.
const std::string kPinned = "pinned host memory";

int train_with_little_locked() {
  const std::uint64_t expected = digest_of_ten_steps(hundred_megabytes());
  if (!give_up_locking(64 << 10)) return kMayNot;
  LogLines log;
  TinyOptions options = hundred_megabytes();
  options.config.log = log.sink();
  EXPECT_EQ(digest_of_ten_steps(options), expected);
  const std::vector<std::string> lines = log.warning_lines({kPinned});
  EXPECT_EQ(lines.size(), 1U);
  for (const std::string& line : lines) {
    std::printf("%s\n", line.c_str());
    expect_words(line, {"staging wants 100", "65536 bytes", "RLIMIT_MEMLOCK", "ulimit -l unlimited",
                        "--ulimit memlock=-1", "LimitMEMLOCK=infinity", "4 more bytes"});
  }
  return ::testing::Test::HasFailure() ? 1 : 0;
}

TEST(LockLimit, SixtyFourKibibytesKeepTheBitsOfAHundredMegabytes) {
  const int status = end_of(start_child(train_with_little_locked));
  if (status == kMayNot) GTEST_SKIP() << "this process may not lower its limit";
  EXPECT_EQ(status, 0);
}

// --- several workers -----------------------------------------------------------------------------

constexpr std::uint64_t kElems = 24'000'000;  // of all workers together: 336 MB

/// Bytes of a process, where what several share counts once in all of them together.
std::uint64_t shared_once_bytes() {
  std::ifstream rollup("/proc/self/smaps_rollup");
  for (std::string line; std::getline(rollup, line);) {
    std::istringstream words(line);
    std::string name;
    std::uint64_t kib = 0;
    if (words >> name >> kib && name == "Pss:") return kib * 1024;
  }
  return 0;
}

/// Ends of pipes: [0] to read, [1] to write.
struct Meetings {
  std::array<int, 2> here{};   // workers say that they are ready, then what they measured
  std::array<int, 2> start{};  // all are ready
  std::array<int, 2> leave{};  // all have measured
};

bool arrive(const std::array<int, 2>& pipe_ends) {
  char token = 0;
  return read(pipe_ends[0], &token, 1) == 1;
}

/// One of `workers` with its part of the model. All measure while all are there.
int work(std::uint64_t workers, const Meetings& meetings) {
  sim::Gpu gpu({.memory_bytes = std::size_t{256} << 20});
  const std::uint64_t elems = kElems / workers;
  Config config;
  config.host.synthetic_topology = "numa:1 core:1 pu:1";
  config.loss_scaling = {.dynamic = false, .initial_scale = 1.0};
  Engine engine(gpu.device(), config);
  const GroupId group = engine.add_group(AdamW{});
  (void)engine.add_parameter({.name = "part",
                              .dtype = DType::f16,
                              .elems = elems,
                              .data = gpu.allocate(2 * elems),
                              .group = group});
  engine.commit();
  if (write(meetings.here[1], "r", 1) != 1 || !arrive(meetings.start)) return 1;
  const std::uint64_t bytes = shared_once_bytes();
  if (write(meetings.here[1], &bytes, sizeof bytes) != sizeof bytes) return 1;
  return arrive(meetings.leave) ? 0 : 1;
}

/// 0 if a worker fails.
std::uint64_t bytes_of_workers(std::uint64_t workers) {
  Meetings meetings;
  for (auto* ends : {&meetings.here, &meetings.start, &meetings.leave}) {
    if (pipe(ends->data()) != 0) return 0;
  }
  std::vector<pid_t> children;
  for (std::uint64_t i = 0; i < workers; ++i) {
    children.push_back(start_child([&] {
      for (const int end : {meetings.here[0], meetings.start[1], meetings.leave[1]}) close(end);
      return work(workers, meetings);
    }));
  }
  close(meetings.here[1]);  // so that a worker that fails ends the reading below
  const std::string all(workers, 'g');
  bool good = true;
  for (std::uint64_t i = 0; i < workers; ++i) good = arrive(meetings.here) && good;
  good = write(meetings.start[1], all.data(), workers) > 0 && good;
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; good && i < workers; ++i) {
    std::uint64_t bytes = 0;
    good = read(meetings.here[0], &bytes, sizeof bytes) == sizeof bytes;
    sum += bytes;
  }
  good = write(meetings.leave[1], all.data(), workers) > 0 && good;
  for (const int end : {meetings.here[0], meetings.start[1], meetings.leave[1], meetings.start[0],
                        meetings.leave[0]}) {
    close(end);
  }
  for (const pid_t child : children) good = end_of(child) == 0 && good;
  return good ? sum : 0;
}

/// Each worker holds its part of the optimizer's state and nothing of the others'.
TEST(Workers, MemoryOfAllTogetherDoesNotGrowWithTheirNumber) {
  const std::uint64_t one = bytes_of_workers(1);
  ASSERT_GE(one, 14 * kElems);
  for (const std::uint64_t workers : {2U, 4U}) {
    const std::uint64_t all = bytes_of_workers(workers);
    std::printf("%llu workers: %llu bytes, one: %llu\n", static_cast<unsigned long long>(workers),
                static_cast<unsigned long long>(all), static_cast<unsigned long long>(one));
    EXPECT_GE(all, 14 * kElems);
    EXPECT_LE(all, one + one / 20 + workers * (std::uint64_t{64} << 20));
  }
}

}  // namespace
}  // namespace outboard::testing
