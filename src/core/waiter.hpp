// SPDX-License-Identifier: Apache-2.0
/// The one place where a caller's thread waits for work that runs elsewhere.
#pragma once

#include <functional>
#include <memory>
#include <mutex>

#include "core/function_ref.hpp"

namespace outboard::core {

class VirtualLoop;

/// Waits for conditions that other threads, or the virtual loop, make true.
class Waiter {
 public:
  virtual ~Waiter() = default;

  /// Blocks until `condition()` holds. `lock` is held when the condition is evaluated and on
  /// return; it is released while waiting. `who` says who waits for what, for the deadlock report.
  /// Real time: sleeps until wake(). Virtual time: runs the loop.
  /// @throws Error{deadlock} in virtual time when nothing is left to run.
  virtual void wait(std::unique_lock<std::mutex>& lock, FunctionRef<bool()> condition,
                    const char* who) = 0;

  /// Some condition may have become true. Call after the change, from any thread, locked or not.
  virtual void wake() noexcept = 0;
};

std::unique_ptr<Waiter> make_thread_waiter();
/// `loop` must outlive the waiter.
std::unique_ptr<Waiter> make_virtual_waiter(VirtualLoop& loop);

}  // namespace outboard::core
