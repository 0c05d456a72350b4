// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <nlohmann/json.hpp>

#include "cli/timeline.hpp"

namespace outboard::cli {
namespace {

using nlohmann::ordered_json;

/// Rows come in the order of their number.
int row_number(const TimelineSpan& span) {
  constexpr int kNodes = 16;  // room for the rows before them
  switch (span.row) {
    case TimelineRow::caller:
      return 0;
    case TimelineRow::compute:
      return 1;
    case TimelineRow::link_down:
      return 2;
    case TimelineRow::link_up:
      return 3;
    case TimelineRow::node:
      break;
  }
  return kNodes + static_cast<int>(span.node);
}

ordered_json name_event(const char* what, std::size_t process, int row, const std::string& name) {
  return {{"ph", "M"}, {"name", what}, {"pid", process}, {"tid", row}, {"args", {{"name", name}}}};
}

ordered_json event_of(const TimelineSpan& span, std::size_t process) {
  ordered_json event = {{"ph", "X"},
                        {"name", span.name},
                        {"cat", span_kind_name(span.kind)},
                        {"pid", process},
                        {"tid", row_number(span)},
                        {"ts", span.start_us},
                        {"dur", span.end_us - span.start_us}};
  if (span.bytes != 0) event["args"]["bytes"] = span.bytes;
  if (!span.stream.empty()) event["args"]["stream"] = span.stream;
  return event;
}

}  // namespace

std::string row_name(const TimelineSpan& span) {
  switch (span.row) {
    case TimelineRow::caller:
      return "caller";
    case TimelineRow::compute:
      return "device";
    case TimelineRow::link_down:
      return "link down";
    case TimelineRow::link_up:
      return "link up";
    case TimelineRow::node:
      break;
  }
  return "node " + std::to_string(span.node);
}

std::string trace_of(std::span<const Timeline> timelines) {
  ordered_json events = ordered_json::array();
  for (std::size_t process = 0; process < timelines.size(); ++process) {
    const Timeline& timeline = timelines[process];
    events.push_back(name_event("process_name", process, 0, timeline.name));
    std::map<int, std::string> rows;
    for (const TimelineSpan& span : timeline.spans) rows[row_number(span)] = row_name(span);
    for (const auto& [row, name] : rows) {
      events.push_back(name_event("thread_name", process, row, name));
    }
    for (const TimelineSpan& span : timeline.spans) events.push_back(event_of(span, process));
  }
  return ordered_json{{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}}.dump() + "\n";
}

}  // namespace outboard::cli
