// SPDX-License-Identifier: Apache-2.0
/// Work in small pieces beside the trainer: on a thread of its own, or in virtual time on the loop.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>

#include "core/virtual_loop.hpp"

namespace outboard::engine {

class Background {
 public:
  struct Piece {
    enum class Next : std::uint8_t { again, later, end } next = Next::end;
    std::int64_t busy_ns = 0;  ///< virtual time until the next
  };
  /// Does one piece. After `later` it is called again when wake() was called, after `end` never.
  /// Throws nothing.
  using Work = std::function<Piece()>;

  /// `loop`: of virtual time, and must outlive this; null: real time.
  explicit Background(core::VirtualLoop* loop) : loop_(loop) {}
  /// The work has ended, or (virtual) will not go on.
  ~Background();
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  /// The work before has ended. @throws Error{out_of_memory} if the system has no thread for it.
  void start(Work work);
  /// From any thread, with any lock but those that the work takes while it is told `later`.
  void wake() noexcept;

 private:
  void run();
  void schedule(std::int64_t delay_ns);
  static void on_event(void* self, std::uint64_t) noexcept;

  core::VirtualLoop* loop_;
  Work work_;
  bool idle_ = true;  // virtual: no event is in the loop
  bool ended_ = true;
  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable woken_;
  bool wake_ = false;
};

}  // namespace outboard::engine
