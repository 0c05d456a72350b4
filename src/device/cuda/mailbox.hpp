// SPDX-License-Identifier: Apache-2.0
/// Carries callbacks from the driver's thread, which may not be held up, to where they may run.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>

#include "core/callback.hpp"
#include "core/virtual_loop.hpp"

namespace outboard::device::cuda {

/// The driver calls a host function on a thread of its own and runs nothing else of the stream
/// until it returns; a callback may wait for a lock whose holder is inside the driver. So the host
/// function only leaves the callback here, and a thread of the mailbox's runs it. In virtual time
/// the loop does. Thread-safe. Allocates only when more notes are under way than ever before.
class Mailbox {
 public:
  /// Counts what is under way for one stream.
  using Pending = std::atomic<std::uint32_t>;

  /// `loop`: null in real time.
  explicit Mailbox(core::VirtualLoop* loop);
  ~Mailbox();
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  struct Note {
    core::Callback callback;
    Mailbox* box = nullptr;
    Pending* pending = nullptr;
    Note* next = nullptr;  // of those that have arrived, or that are free
  };
  /// A note that arrive() brings, or cancel() takes back. `pending` outlives it.
  [[nodiscard]] Note* write(core::Callback callback, Pending& pending);
  void cancel(Note* note) noexcept;
  /// A host function of the driver's: `note` is what write() gave.
  static void arrive(void* note) noexcept;

  /// Blocks until nothing is under way for `pending`, or close() was called. Real time only.
  void wait_idle(const Pending& pending);
  /// From now on no callback is called; those that run have returned. Notes may still arrive.
  void close() noexcept;

 private:
  using Lock = std::unique_lock<std::mutex>;
  void run() noexcept;
  void deliver(Lock& lock, Note* note) noexcept;
  void recycle(Note* note) noexcept;

  core::VirtualLoop* const loop_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::condition_variable idle_;
  std::deque<Note> notes_;  // never shrinks: the driver may hold an address of any
  Note* free_ = nullptr;
  Note* first_ = nullptr;  // arrived
  Note* last_ = nullptr;
  bool closed_ = false;
  std::thread thread_;
};

}  // namespace outboard::device::cuda
