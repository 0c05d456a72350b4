// SPDX-License-Identifier: Apache-2.0
// Processes that save over an existing checkpoint are killed at random moments: what is there is
// always a whole one, the one before or a newer one.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <random>
#include <thread>

#include "outboard/error.hpp"
#include "small_state.hpp"
#include "support/seeds.hpp"
#include "support/temporary_folder.hpp"

namespace outboard {
namespace {

using testing::read_version;
using testing::SmallState;

constexpr int kKills = 200;

SmallState state_of(std::uint32_t version) {
  SmallState state(version);
  state.parameters[0].elems = 20'000;
  return state;
}

void save(const std::string& root, std::uint32_t version) {
  SmallState state = state_of(version);
  ckpt::save(ckpt::posix_file_system(), root, state.request(), state);
}

/// Of a child that saves one version after the other until it is killed.
pid_t start_saving(const std::string& root, std::uint32_t version) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  try {
    for (;; ++version) save(root, version);
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "%s\n", failure.what());
  }
  ::_exit(1);
}

TEST(Kill, LeavesAWholeCheckpointAtAnyMoment) {
  const std::uint64_t seed = testing::chosen_seed().value_or(1);
  std::printf("replay: OUTBOARD_TEST_SEED=%llu\n", static_cast<unsigned long long>(seed));
  std::mt19937_64 random(seed);
  const testing::TemporaryFolder folder;
  const std::string root = folder.path("run");
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  save(root, 1);
  const auto window =
      3 * std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start);
  std::uint32_t version = 1;
  int newer = 0;
  int left_over = 0;
  for (int kill = 0; kill < kKills; ++kill) {
    const pid_t child = start_saving(root, version + 1);
    ASSERT_GT(child, 0);
    std::this_thread::sleep_for(window * (random() % 1000) / 1000);
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child failed by itself";
    const auto checkpoint = ckpt::Checkpoint::open(ckpt::posix_file_system(), root);
    checkpoint.verify();
    const auto now = static_cast<std::uint32_t>(checkpoint.manifest().counters.steps);
    ASSERT_GE(now, version);
    newer += now > version ? 1 : 0;
    version = now;
    std::size_t names = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(root)) ++names;
    left_over += names > 1 ? 1 : 0;
  }
  std::printf("%d kills: %d after a save had come through, %d left something over\n", kKills, newer,
              left_over);
  EXPECT_GT(newer + left_over, 0) << "no save was under way when it was killed";
  save(root, version + 1);
  std::size_t names = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(root)) ++names;
  EXPECT_EQ(names, 1U) << "the next save removes what is left";
}

}  // namespace
}  // namespace outboard
