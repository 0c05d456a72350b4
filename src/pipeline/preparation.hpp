// SPDX-License-Identifier: Apache-2.0
/// What commit() does to host memory before it can be used: every page is brought in once, by the
/// threads of its node. Where that takes long the user is told how far it is.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "core/function_ref.hpp"
#include "memory/first_touch.hpp"
#include "pipeline/flow.hpp"

namespace outboard::pipeline {

class Preparation {
 public:
  /// Progress goes to `log`, which may be empty and must outlive this.
  Preparation(Flow& flow, const LogSink& log) : flow_(flow), log_(log) {}
  Preparation(const Preparation&) = delete;
  Preparation& operator=(const Preparation&) = delete;

  /// A commit() begins that prepares this much: state, sums and staging.
  void begin(std::uint64_t bytes);
  /// Whether memory is ready once it is there, or what fills it counts it.
  enum class Ready : std::uint8_t { when_touched, when_filled };
  /// See memory::FirstTouch. Releases the lock while it waits.
  [[nodiscard]] bool touch(std::unique_lock<std::mutex>& lock,
                           std::span<const memory::FreshMemory> fresh, Ready ready);
  /// So much more is ready. With the lock.
  void count(std::uint64_t bytes) noexcept { ready_bytes_ += bytes; }
  /// Waits as the waiter does, and tells of progress from the third second on, without the lock.
  void wait(std::unique_lock<std::mutex>& lock, core::FunctionRef<bool()> condition,
            const char* who);
  /// All is ready: tells how long it took, if anything was told before.
  void end(std::unique_lock<std::mutex>& lock);

 private:
  [[nodiscard]] bool due() const;
  void tell(std::unique_lock<std::mutex>& lock, const std::string& what);
  // Without the lock, on an executor thread:
  static void touch_part(void* self, std::uint64_t piece, std::uint32_t part) noexcept;
  static void touched(void* self, std::uint64_t piece) noexcept;

  Flow& flow_;
  const LogSink& log_;
  std::uint64_t all_bytes_ = 0;
  std::uint64_t ready_bytes_ = 0;
  std::int64_t began_ns_ = 0;
  std::int64_t told_ns_ = 0;
  bool told_ = false;
  std::vector<memory::FreshMemory> pieces_;  // that tasks are about
  std::atomic<bool> refused_{false};
};

}  // namespace outboard::pipeline
