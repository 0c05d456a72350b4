// SPDX-License-Identifier: Apache-2.0
/// The one place where a caller's thread waits for work that runs elsewhere.
#pragma once

#include <functional>
#include <memory>
#include <mutex>

#include "core/function_ref.hpp"
#include "core/span_recorder.hpp"

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

  /// Keeps a span of each wait that takes time. `recorder` must outlive the waiter, or be null.
  void record_to(SpanRecorder* recorder) noexcept { recorder_ = recorder; }

 protected:
  [[nodiscard]] bool recording() const noexcept { return recorder_ != nullptr && recorder_->on(); }
  void record(const char* who, const RecordedTime& time) noexcept {
    if (time.end_ns == time.start_ns) return;
    recorder_->add({.row = TimelineRow::caller, .kind = SpanKind::wait, .name = who}, time);
  }

 private:
  SpanRecorder* recorder_ = nullptr;
};

std::unique_ptr<Waiter> make_thread_waiter();
/// One that also calls `poll` now and then while somebody sleeps, and looks at the condition again:
/// for what fails without waking anybody. `poll` must not throw.
std::unique_ptr<Waiter> make_polling_waiter(std::function<void()> poll);
/// `loop` must outlive the waiter.
std::unique_ptr<Waiter> make_virtual_waiter(VirtualLoop& loop);

}  // namespace outboard::core
