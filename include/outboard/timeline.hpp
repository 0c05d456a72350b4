// SPDX-License-Identifier: Apache-2.0
/// What ran when, on what: of a step that is planned, or of a software GPU and the engines on it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace outboard {

/// What does one thing at a time.
enum class TimelineRow : std::uint8_t {
  compute,    ///< the device's kernels, the trainer's and the engine's
  link_down,  ///< copies from the device to the host
  link_up,    ///< copies from the host to the device
  node,       ///< tasks on the cores of a NUMA node
  caller,     ///< calls of the trainer that wait
};

enum class SpanKind : std::uint8_t {
  forward,
  backward,
  norm,      ///< sums of squares of gradients
  gradient,  ///< a gradient on its way to the host
  sum,       ///< a gradient added to those of other micro-batches, on a node
  gate,      ///< scalars that decide about the step, on their way to the host
  update,    ///< of masters and state, on a node or on the device
  weight,    ///< a refreshed weight on its way to the device
  state,     ///< state on its way through the device
  wait,      ///< a call that waits
  other,
};
/// As the enumerators are called.
[[nodiscard]] constexpr const char* span_kind_name(SpanKind kind) noexcept {
  switch (kind) {
    case SpanKind::forward:
      return "forward";
    case SpanKind::backward:
      return "backward";
    case SpanKind::norm:
      return "norm";
    case SpanKind::gradient:
      return "gradient";
    case SpanKind::sum:
      return "sum";
    case SpanKind::gate:
      return "gate";
    case SpanKind::update:
      return "update";
    case SpanKind::weight:
      return "weight";
    case SpanKind::state:
      return "state";
    case SpanKind::wait:
      return "wait";
    case SpanKind::other:
      break;
  }
  return "other";
}

struct TimelineSpan {
  static constexpr std::uint32_t kNoIndex = UINT32_MAX;
  TimelineRow row = TimelineRow::compute;
  std::uint32_t node = 0;  ///< of TimelineRow::node
  SpanKind kind = SpanKind::other;
  std::uint32_t index = kNoIndex;  ///< planned: of the piece of work, or of the bucket; recorded:
                                   ///< of the bucket that a node updates
  double start_us = 0.0;
  double end_us = 0.0;
  std::uint64_t bytes = 0;        ///< of a copy; 0: not known
  const void* address = nullptr;  ///< recorded: the device's end of a copy, what a kernel reduces
  std::string name{};
  std::string stream{};  ///< recorded: of what the device ran
};

/// In order of start.
struct Timeline {
  std::string name;
  std::vector<TimelineSpan> spans;
  std::uint64_t dropped = 0;  ///< spans that found no room
};

}  // namespace outboard
