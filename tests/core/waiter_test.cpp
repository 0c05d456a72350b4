// SPDX-License-Identifier: Apache-2.0
#include "core/waiter.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "core/virtual_loop.hpp"
#include "support/expect_error.hpp"

namespace outboard::core {
namespace {

TEST(ThreadWaiter, ReturnsAtOnceIfTheConditionHolds) {
  const auto waiter = make_thread_waiter();
  std::mutex mutex;
  std::unique_lock lock(mutex);
  waiter->wait(
      lock, [] { return true; }, "nobody");
  EXPECT_TRUE(lock.owns_lock());
}

// The condition is an atomic that its writer changes without any lock: the hardest case for a
// sleeper, which may have looked just before and fall asleep just after. A lost wake hangs.
TEST(ThreadWaiter, NeverLosesAWakeFromAThreadWithoutTheLock) {
  constexpr std::uint64_t kRounds = 30000;
  const auto waiter = make_thread_waiter();
  std::atomic<std::uint64_t> turn{0};
  const auto play = [&](std::uint64_t parity) {
    std::mutex mutex;
    std::unique_lock lock(mutex);
    for (std::uint64_t round = 0; round < kRounds; ++round) {
      waiter->wait(
          lock, [&] { return turn.load() % 2 == parity; }, "a player");
      turn.fetch_add(1);
      waiter->wake();
    }
  };
  std::thread even(play, 0);
  std::thread odd(play, 1);
  even.join();
  odd.join();
  EXPECT_EQ(turn.load(), 2 * kRounds);
}

// The same moment, made certain: the change and its wake() come after the condition has looked and
// before the sleep begins. A lost wake hangs.
TEST(ThreadWaiter, AWakeBetweenTheLookAndTheSleepCounts) {
  const auto waiter = make_thread_waiter();
  std::atomic<bool> set{false};
  int looks = 0;
  std::mutex mutex;
  std::unique_lock lock(mutex);
  waiter->wait(
      lock,
      [&] {
        const bool found = set.load();
        if (++looks == 1) {
          std::thread([&] {
            set = true;
            waiter->wake();
          }).join();
        }
        return found;
      },
      "the test");
  EXPECT_EQ(looks, 2);
}

TEST(ThreadWaiter, WakesEveryoneWhoWaits) {
  const auto waiter = make_thread_waiter();
  std::atomic<bool> open{false};
  std::atomic<int> through{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      std::mutex mutex;
      std::unique_lock lock(mutex);
      waiter->wait(
          lock, [&] { return open.load(); }, "a visitor");
      ++through;
    });
  }
  open = true;
  waiter->wake();
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(through.load(), 4);
}

struct Latch {
  std::mutex mutex;
  bool set = false;
  int ran = 0;
};

Callback count_then_set_at(Latch& latch, int last) {
  return {[](void* context, std::uint64_t argument) noexcept {
            auto& self = *static_cast<Latch*>(context);
            const std::scoped_lock guard(self.mutex);  // free while the waiter runs the loop
            self.set = ++self.ran == static_cast<int>(argument);
          },
          &latch, static_cast<std::uint64_t>(last)};
}

TEST(VirtualWaiter, RunsTheLoopUntilTheConditionHoldsAndNoFurther) {
  VirtualLoop loop(7);
  const auto waiter = make_virtual_waiter(loop);
  Latch latch;
  for (int i = 1; i <= 5; ++i) loop.after(10 * i, count_then_set_at(latch, 3));
  std::unique_lock lock(latch.mutex);
  waiter->wait(
      lock, [&] { return latch.set; }, "the test");
  EXPECT_TRUE(lock.owns_lock());
  EXPECT_EQ(latch.ran, 3);
  EXPECT_EQ(loop.now(), 30);
}

TEST(VirtualWaiter, DeadlockNamesWhoWaitsTheSeedAndWhatIsBlocked) {
  VirtualLoop loop(4711);
  const auto waiter = make_virtual_waiter(loop);
  std::mutex mutex;
  (void)loop.add_reporter([&](std::string& text) {
    const std::scoped_lock guard(mutex);  // a reporter may take the very lock of the caller
    text += "stream 'copies' waits for flag 3\n";
  });
  std::unique_lock lock(mutex);
  testing::expect_error(ErrorCode::deadlock,
                        {"step() waits for the norm", "4711", "stream 'copies' waits for flag 3"},
                        [&] {
                          waiter->wait(
                              lock, [] { return false; }, "step() waits for the norm");
                        });
  EXPECT_TRUE(lock.owns_lock());
}

}  // namespace
}  // namespace outboard::core
