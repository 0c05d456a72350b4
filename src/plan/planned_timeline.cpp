// SPDX-License-Identifier: Apache-2.0
#include "plan/planned_timeline.hpp"

namespace outboard::plan {
namespace {

TimelineRow row_of(Resource resource) {
  switch (resource) {
    case Resource::compute:
      return TimelineRow::compute;
    case Resource::link_down:
      return TimelineRow::link_down;
    case Resource::link_up:
      return TimelineRow::link_up;
    case Resource::node:
      break;
  }
  return TimelineRow::node;
}

SpanKind kind_of(OpKind kind) {
  switch (kind) {
    case OpKind::backward:
      return SpanKind::backward;
    case OpKind::forward:
    case OpKind::pass:
      return SpanKind::forward;
    case OpKind::norm:
      return SpanKind::norm;
    case OpKind::gradient:
      return SpanKind::gradient;
    case OpKind::gate:
      return SpanKind::gate;
    case OpKind::update:
      return SpanKind::update;
    case OpKind::weight:
    case OpKind::unpack:
      return SpanKind::weight;
    case OpKind::sum:
      return SpanKind::sum;
    case OpKind::state_in:
    case OpKind::state_out:
      break;
  }
  return SpanKind::state;
}

/// "forward, parameter 3", "update, bucket 7".
std::string name_of(const TimelineEntry& entry, const StepTimes& times) {
  std::string kind = span_kind_name(kind_of(entry.kind));
  if (entry.kind == OpKind::gate) return kind;
  if (entry.kind == OpKind::unpack) kind += " unpacked";
  if (entry.kind == OpKind::pass) {
    return kind + ", micro-batch " + std::to_string(entry.index + 1);
  }
  const bool forward = entry.kind == OpKind::forward;
  if (!forward && entry.kind != OpKind::backward && entry.kind != OpKind::norm) {
    return kind + ", bucket " + std::to_string(entry.index);
  }
  const std::vector<ComputePiece>& pieces = forward ? times.forward : times.backward;
  // The simulator may add a piece that waits for what no other one needs.
  if (entry.index >= pieces.size() || pieces[entry.index].parameter == kNoParameter) return kind;
  return kind + ", parameter " + std::to_string(pieces[entry.index].parameter);
}

}  // namespace

Timeline public_timeline(std::span<const TimelineEntry> entries, const StepTimes& times) {
  Timeline out;
  out.spans.reserve(entries.size());
  for (const TimelineEntry& entry : entries) {
    out.spans.push_back({.row = row_of(entry.resource),
                         .node = entry.node,
                         .kind = kind_of(entry.kind),
                         .index = entry.index,
                         .start_us = entry.start_us,
                         .end_us = entry.end_us,
                         .name = name_of(entry, times)});
  }
  return out;
}

}  // namespace outboard::plan
