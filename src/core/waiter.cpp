// SPDX-License-Identifier: Apache-2.0
#include "core/waiter.hpp"

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "core/virtual_loop.hpp"
#include "outboard/error.hpp"

namespace outboard::core {
namespace {

constexpr std::chrono::milliseconds kPollEvery(20);

class ThreadWaiter final : public Waiter {
 public:
  explicit ThreadWaiter(std::function<void()> poll) : poll_(std::move(poll)) {}

  void wait(std::unique_lock<std::mutex>& lock, FunctionRef<bool()> condition,
            const char* who) override {
    const std::int64_t start_ns = recording() ? now_ns() : 0;
    const bool slept = wait_until(lock, condition);
    if (slept && recording()) record(who, {start_ns, now_ns()});
  }

  void wake() noexcept override {
    {
      const std::scoped_lock guard(mutex_);
      ++epoch_;
    }
    moved_.notify_all();
  }

 private:
  static std::int64_t now_ns() noexcept {
    return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
  }

  /// Returns whether it slept.
  bool wait_until(std::unique_lock<std::mutex>& lock, FunctionRef<bool()> condition) {
    for (bool slept = false;; slept = true) {
      // Read before the condition: a wake() that comes after the condition was found false has
      // then already moved the epoch, and the sleep below ends at once.
      const std::uint64_t seen = epoch();
      if (condition()) return slept;
      lock.unlock();
      sleep_past(seen);
      lock.lock();
    }
  }

  std::uint64_t epoch() {
    const std::scoped_lock guard(mutex_);
    return epoch_;
  }

  void sleep_past(std::uint64_t seen) {
    std::unique_lock<std::mutex> guard(mutex_);
    const auto moved = [&] { return epoch_ != seen; };
    if (!poll_) return moved_.wait(guard, moved);
    if (moved_.wait_for(guard, kPollEvery, moved)) return;
    guard.unlock();
    poll_();
  }

  const std::function<void()> poll_;
  std::mutex mutex_;
  std::condition_variable moved_;
  std::uint64_t epoch_ = 0;
};

class VirtualWaiter final : public Waiter {
 public:
  explicit VirtualWaiter(VirtualLoop& loop) : loop_(loop) {}

  void wait(std::unique_lock<std::mutex>& lock, FunctionRef<bool()> condition,
            const char* who) override {
    const VirtualTime start_ns = loop_.now();
    while (!condition()) {
      lock.unlock();
      const bool ran = loop_.run_one();
      lock.lock();
      if (!ran) deadlock(lock, who);
    }
    if (recording()) record(who, {start_ns, loop_.now()});
  }

  void wake() noexcept override {}

 private:
  [[noreturn]] void deadlock(std::unique_lock<std::mutex>& lock, const char* who) const {
    lock.unlock();  // reporters look at state under the same lock
    const std::string report = loop_.report();
    lock.lock();
    throw Error(ErrorCode::deadlock, std::string("deadlock in virtual time: ") + who +
                                         ", and nothing is left to run (time " +
                                         std::to_string(loop_.now()) + " ns, seed " +
                                         std::to_string(loop_.seed()) + ")\n" + report);
  }

  VirtualLoop& loop_;
};

}  // namespace

std::unique_ptr<Waiter> make_thread_waiter() {
  return std::make_unique<ThreadWaiter>(std::function<void()>());
}

std::unique_ptr<Waiter> make_polling_waiter(std::function<void()> poll) {
  return std::make_unique<ThreadWaiter>(std::move(poll));
}

std::unique_ptr<Waiter> make_virtual_waiter(VirtualLoop& loop) {
  return std::make_unique<VirtualWaiter>(loop);
}

}  // namespace outboard::core
