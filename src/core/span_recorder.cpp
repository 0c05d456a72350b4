// SPDX-License-Identifier: Apache-2.0
#include "core/span_recorder.hpp"

#include <algorithm>

namespace outboard::core {
namespace {

template <std::size_t kSize>
void keep(std::string_view text, std::array<char, kSize>& out) noexcept {
  const std::size_t length = std::min(text.size(), kSize - 1);
  std::copy_n(text.begin(), length, out.begin());
  out[length] = '\0';
}

}  // namespace

void SpanRecorder::start(std::size_t capacity) {
  const std::lock_guard lock(mutex_);
  on_.store(false);
  entries_ = {};
  entries_.reserve(capacity);
  capacity_ = capacity;
  dropped_ = 0;
  on_.store(capacity > 0);
}

void SpanRecorder::add(const RecordedSpan& span, const RecordedTime& time) noexcept {
  if (!on()) return;
  const std::lock_guard lock(mutex_);
  if (entries_.size() == capacity_) {
    ++dropped_;
    return;
  }
  Entry& entry = entries_.emplace_back();
  entry.span = span;
  entry.span.name = entry.span.stream = {};  // borrowed: only what is copied stays
  entry.time = time;
  keep(span.name, entry.name);
  keep(span.stream, entry.stream);
}

TimelineSpan SpanRecorder::span_of(const Entry& entry) const {
  const auto us = [&](std::int64_t ns) { return static_cast<double>(ns - origin_ns_) * 1e-3; };
  return {.row = entry.span.row,
          .node = entry.span.node,
          .kind = entry.span.kind,
          .index = entry.span.index,
          .start_us = us(entry.time.start_ns),
          .end_us = us(entry.time.end_ns),
          .bytes = entry.span.bytes,
          .address = entry.span.address,
          .name = entry.name.data(),
          .stream = entry.stream.data()};
}

Timeline SpanRecorder::take() const {
  Timeline out;
  const std::lock_guard lock(mutex_);
  out.spans.reserve(entries_.size());
  for (const Entry& entry : entries_) out.spans.push_back(span_of(entry));
  out.dropped = dropped_;
  std::ranges::stable_sort(out.spans, {}, &TimelineSpan::start_us);
  return out;
}

}  // namespace outboard::core
