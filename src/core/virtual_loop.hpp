// SPDX-License-Identifier: Apache-2.0
/// A single-threaded discrete-event loop with a virtual clock: the heart of virtual time.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/callback.hpp"

namespace outboard::core {

/// Nanoseconds since the loop was made.
using VirtualTime = std::int64_t;

/// Not thread-safe: everything that posts to it or runs it is on one thread.
class VirtualLoop {
 public:
  /// `seed` decides the order of events due at the same time, and every random_below().
  explicit VirtualLoop(std::uint64_t seed);

  [[nodiscard]] VirtualTime now() const noexcept { return now_; }
  [[nodiscard]] std::uint64_t seed() const noexcept { return seed_; }

  /// Runs `callback` when the clock reaches now() + delay (delay >= 0). After warm-up it allocates
  /// nothing.
  void after(VirtualTime delay, Callback callback);
  /// The same at now(), behind all other events of this moment, later ones too.
  void after_this_moment(Callback callback);
  /// Runs the next event: the earliest; among those due at the same time the seed picks.
  /// @return false if there is none.
  bool run_one();
  /// Called at the start of each run_one(), for what changes without an event: a word that host
  /// code writes. Empty: nothing is.
  void before_each(std::function<void()> look) { look_ = std::move(look); }
  /// Drops every event whose callback has this context: call before the context goes.
  void forget(const void* context) noexcept;

  /// Uniform in [0, bound); bound >= 1. Part of the replayable sequence.
  std::uint64_t random_below(std::uint64_t bound);

  /// What is blocked, for the deadlock report: every reporter appends lines. Returns a token for
  /// remove_reporter().
  std::uint64_t add_reporter(std::function<void(std::string&)> reporter);
  void remove_reporter(std::uint64_t token) noexcept;
  [[nodiscard]] std::string report() const;

 private:
  struct Entry {
    VirtualTime due;
    std::uint64_t tie;  // drawn from the seed: a random but replayable order
    std::uint64_t sequence;
    Callback callback;
  };
  struct Later;
  std::uint64_t next_random() noexcept;
  void push(const Entry& entry);

  std::function<void()> look_;
  std::uint64_t seed_;
  std::uint64_t random_state_;
  VirtualTime now_ = 0;
  std::uint64_t sequence_ = 0;
  std::uint64_t next_token_ = 0;
  std::vector<Entry> heap_;
  std::vector<std::pair<std::uint64_t, std::function<void(std::string&)>>> reporters_;
};

}  // namespace outboard::core
