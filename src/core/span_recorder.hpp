// SPDX-License-Identifier: Apache-2.0
/// Keeps what ran when, for whoever asks to see it: off unless started, bounded, allocates nothing
/// between start() and take().
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string_view>
#include <vector>

#include "outboard/timeline.hpp"

namespace outboard::core {

/// Times in nanoseconds of the clock that the recorder's owner runs by: the virtual one, or
/// std::chrono::steady_clock since its epoch.
struct RecordedTime {
  std::int64_t start_ns = 0;
  std::int64_t end_ns = 0;
};

struct RecordedSpan {
  TimelineRow row = TimelineRow::compute;
  std::uint32_t node = 0;
  SpanKind kind = SpanKind::other;
  std::uint32_t index = TimelineSpan::kNoIndex;
  std::uint64_t bytes = 0;
  const void* address = nullptr;
  std::string_view name{};    ///< copied, cut after 47 characters
  std::string_view stream{};  ///< copied, cut after 31 characters
};

/// Thread-safe.
class SpanRecorder {
 public:
  /// `origin_ns` becomes 0 in what take() gives.
  explicit SpanRecorder(std::int64_t origin_ns) : origin_ns_(origin_ns) {}

  /// Forgets what it has and keeps at most `capacity` spans from now on. 0: off.
  /// @throws std::bad_alloc.
  void start(std::size_t capacity);
  [[nodiscard]] bool on() const noexcept { return on_.load(std::memory_order_relaxed); }
  /// Nothing while off; counts what finds no room.
  void add(const RecordedSpan& span, const RecordedTime& time) noexcept;
  /// What has ended so far, in order of start; recording goes on.
  [[nodiscard]] Timeline take() const;

 private:
  struct Entry {
    RecordedSpan span;  ///< its views are set by take()
    RecordedTime time;
    std::array<char, 48> name{};
    std::array<char, 32> stream{};
  };
  [[nodiscard]] TimelineSpan span_of(const Entry& entry) const;

  const std::int64_t origin_ns_;
  std::atomic<bool> on_{false};
  mutable std::mutex mutex_;
  std::size_t capacity_ = 0;
  std::vector<Entry> entries_;
  std::uint64_t dropped_ = 0;
};

}  // namespace outboard::core
