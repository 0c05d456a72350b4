// SPDX-License-Identifier: Apache-2.0
/// Timelines as files: a trace for a viewer, a chart for a page.
#pragma once

#include <span>
#include <string>

#include "outboard/timeline.hpp"

namespace outboard::cli {

/// The JSON that chrome://tracing and ui.perfetto.dev read: a process for each timeline, a thread
/// for each of its rows.
[[nodiscard]] std::string trace_of(std::span<const Timeline> timelines);

/// Figures for page(), all on one scale from 0; spans too narrow to see are drawn together,
/// as dense as their row is busy.
[[nodiscard]] std::string charts_of(std::span<const Timeline> timelines);
/// Their colours, for page().
[[nodiscard]] std::string chart_style();

/// "device", "link down", "link up", "node 0", "caller".
[[nodiscard]] std::string row_name(const TimelineSpan& span);

}  // namespace outboard::cli
