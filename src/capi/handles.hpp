// SPDX-License-Identifier: Apache-2.0
/// Handles that can be told from what was destroyed: a handle is a number that is never used again,
/// dressed as a pointer, and no address.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "capi/guarded.hpp"

namespace outboard::capi {

/// Objects of type T by handles of type Handle. Thread-safe.
template <class Handle, class T>
class Handles {
 public:
  Handle* add(std::shared_ptr<T> object) {
    const std::scoped_lock guard(mutex_);
    const std::uintptr_t number = next_;
    objects_.emplace(number, std::move(object));
    next_ += kStep;
    return reinterpret_cast<Handle*>(number);  // NOLINT(performance-no-int-to-ptr): not followed
  }
  /// @throws Error{invalid_argument} for a handle that is none, or was destroyed.
  [[nodiscard]] std::shared_ptr<T> find(const char* call, const char* name,
                                        const Handle* handle) const {
    require_pointer(call, name, handle);
    const std::scoped_lock guard(mutex_);
    const auto found = objects_.find(reinterpret_cast<std::uintptr_t>(handle));
    if (found == objects_.end()) {
      refuse(call, std::string("`") + name + "` is no handle, or was destroyed already");
    }
    return found->second;
  }
  void remove(const Handle* handle) noexcept {
    const std::scoped_lock guard(mutex_);
    objects_.erase(reinterpret_cast<std::uintptr_t>(handle));
  }

 private:
  static constexpr std::uintptr_t kStep = 16;  // as aligned as an address would be

  mutable std::mutex mutex_;
  std::unordered_map<std::uintptr_t, std::shared_ptr<T>> objects_;
  std::uintptr_t next_ = kStep;
};

/// Calls that may run side by side, and calls that exclude all others. Nobody waits: who comes at
/// the wrong time is refused.
class CallGate {
 public:
  /// For the time of one call. @throws Error{protocol_error}.
  class Pass {
   public:
    enum class Kind : std::uint8_t { shared, alone };
    Pass(CallGate& gate, Kind kind, const char* call) : gate_(gate), kind_(kind) {
      if (!(kind == Kind::alone ? gate.enter_alone() : gate.enter_shared())) refuse_now(call, kind);
    }
    ~Pass() {
      if (kind_ == Kind::alone) {
        gate_.inside_.store(0, std::memory_order_release);
      } else {
        gate_.inside_.fetch_sub(1, std::memory_order_release);
      }
    }
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;

   private:
    [[noreturn]] static void refuse_now(const char* call, Kind kind) {
      throw Error(
          ErrorCode::protocol_error,
          std::string(call) + "(): another thread is inside a call of this engine" +
              (kind == Kind::alone ? ", and this one must be alone" : " that must be alone") +
              "; nothing was done");
    }
    CallGate& gate_;
    Kind kind_;
  };

 private:
  static constexpr std::int32_t kAlone = -1;
  bool enter_alone() noexcept {
    std::int32_t nobody = 0;
    return inside_.compare_exchange_strong(nobody, kAlone, std::memory_order_acquire);
  }
  bool enter_shared() noexcept {
    std::int32_t inside = inside_.load(std::memory_order_relaxed);
    while (inside != kAlone) {
      if (inside_.compare_exchange_weak(inside, inside + 1, std::memory_order_acquire)) return true;
    }
    return false;
  }
  std::atomic<std::int32_t> inside_{0};
};

}  // namespace outboard::capi
