// SPDX-License-Identifier: Apache-2.0
// Timelines as inline SVG.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <vector>

#include "cli/page.hpp"
#include "cli/report.hpp"
#include "cli/timeline.hpp"

namespace outboard::cli {
namespace {

constexpr double kLeft = 78;
constexpr double kRight = 12;
constexpr double kWidth = 920;
constexpr double kRowHeight = 22;
constexpr double kBarHeight = 18;
constexpr double kAxisHeight = 22;
constexpr double kSeen = 1.5;  // narrower spans are drawn together with their neighbours
constexpr double kGap = 0.4;   // if no wider gap is between them

struct Colour {
  SpanKind kind;
  const char* light;
  const char* dark;
};
/// The trainer's work in greys, the engine's in colours that differ in brightness too.
constexpr std::array<Colour, 11> kColours = {{{SpanKind::forward, "#8a96a3", "#77828d"},
                                              {SpanKind::backward, "#59636e", "#a3adb8"},
                                              {SpanKind::norm, "#7b4ea3", "#b48ad6"},
                                              {SpanKind::gradient, "#c4571a", "#e8894f"},
                                              {SpanKind::sum, "#d18a00", "#f0b95a"},
                                              {SpanKind::gate, "#b3152b", "#ff6b7d"},
                                              {SpanKind::update, "#0b6e99", "#4fb3e0"},
                                              {SpanKind::weight, "#2f8f4e", "#63c785"},
                                              {SpanKind::state, "#8a7a12", "#d0bd4a"},
                                              {SpanKind::wait, "#d3b7bd", "#5d3f46"},
                                              {SpanKind::other, "#c3ccd5", "#3d4650"}}};

struct Bar {
  const TimelineSpan* first = nullptr;
  double from = 0.0, to = 0.0;  ///< in the picture
  double us = 0.0;
  std::uint64_t spans = 1;
};

double end_of(std::span<const Timeline> timelines) {
  double end = 1.0;
  for (const Timeline& timeline : timelines) {
    for (const TimelineSpan& span : timeline.spans) end = std::max(end, span.end_us);
  }
  return end;
}

std::vector<Bar> bars_of(const std::vector<const TimelineSpan*>& row, double per_us) {
  std::vector<Bar> bars;
  for (const TimelineSpan* span : row) {
    Bar next{span, kLeft + span->start_us * per_us, kLeft + span->end_us * per_us,
             span->end_us - span->start_us, 1};
    if (!bars.empty()) {
      Bar& last = bars.back();
      const bool narrow = next.to - next.from < kSeen;
      if (last.first->kind == span->kind && narrow && next.from - last.to < kGap) {
        last.to = std::max(last.to, next.to);
        last.us += next.us;
        last.spans += 1;
        continue;
      }
    }
    bars.push_back(next);
  }
  return bars;
}

/// Bars drawn together are as dense as their row is busy.
std::string density(const Bar& bar, double per_us) {
  if (bar.spans == 1) return "";
  const double busy = bar.us * per_us / std::max(bar.to - bar.from, 1e-9);
  return print(" fill-opacity=\"%.2f\"", std::clamp(busy, 0.15, 1.0));
}

std::string draw(const Bar& bar, double y, double per_us) {
  const double width = std::max(bar.to - bar.from, 0.3);
  const std::string what = bar.spans == 1
                               ? bar.first->name
                               : print("%llu times ", static_cast<unsigned long long>(bar.spans)) +
                                     span_kind_name(bar.first->kind);
  return print("<rect class=\"%s%s\" x=\"%.2f\" y=\"%.0f\" width=\"%.2f\" height=\"%.0f\"%s>",
               span_kind_name(bar.first->kind), width > 3 ? " edge" : "", bar.from, y, width,
               kBarHeight, density(bar, per_us).c_str()) +
         print("<title>%s: %.1f us from %.1f us</title></rect>\n",
               escaped(what.substr(0, 200)).c_str(), bar.us, bar.first->start_us);
}

/// 1, 2 or 5 times a power of ten, about eight of them.
double tick_us(double end_us) {
  const double rough = end_us / 8;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  const double times = rough / power;
  return (times < 1.5 ? 1 : times < 3.5 ? 2 : times < 7.5 ? 5 : 10) * power;
}

std::string draw_axis(double end_us, double per_us, double height) {
  std::string text;
  const double tick = tick_us(end_us);
  const auto ticks = static_cast<int>(end_us / tick);
  for (int i = 0; i <= ticks; ++i) {
    const double at = i * tick;
    const double x = kLeft + at * per_us;
    text +=
        print("<line class=\"axis\" x1=\"%.1f\" x2=\"%.1f\" y1=\"0\" y2=\"%.0f\"/>", x, x, height);
    text += print("<text class=\"soft\" x=\"%.1f\" y=\"%.0f\" text-anchor=\"middle\">%g</text>", x,
                  height + 14, at / 1e3);
  }
  return text + "\n";
}

std::string chart(const Timeline& timeline, double end_us) {
  using Key = std::pair<int, std::uint32_t>;
  std::map<Key, std::vector<const TimelineSpan*>> rows;
  for (const TimelineSpan& span : timeline.spans) {
    rows[{static_cast<int>(span.row), span.node}].push_back(&span);
  }
  const double per_us = (kWidth - kLeft - kRight) / end_us;
  const double height = kRowHeight * static_cast<double>(rows.size());
  std::string text = print("<svg viewBox=\"0 0 %.0f %.0f\" role=\"img\" aria-label=\"timeline\">\n",
                           kWidth, height + kAxisHeight) +
                     draw_axis(end_us, per_us, height);
  double y = 0.0;
  for (const auto& [key, spans] : rows) {
    text += print("<text x=\"0\" y=\"%.0f\">%s</text>\n", y + 14, row_name(*spans.front()).c_str());
    for (const Bar& bar : bars_of(spans, per_us)) text += draw(bar, y + 1, per_us);
    y += kRowHeight;
  }
  return text + "</svg>\n";
}

std::string legend(std::span<const Timeline> timelines) {
  std::string text = "<p class=\"legend\">";
  for (const Colour& colour : kColours) {
    const bool used = std::ranges::any_of(timelines, [&](const Timeline& timeline) {
      return std::ranges::any_of(
          timeline.spans, [&](const TimelineSpan& span) { return span.kind == colour.kind; });
    });
    if (!used) continue;
    const char* name = span_kind_name(colour.kind);
    text += print(
        "<span><svg viewBox=\"0 0 12 12\"><rect class=\"%s\" width=\"12\" "
        "height=\"12\"/></svg>%s</span> ",
        name, name);
  }
  return text + "milliseconds</p>\n";
}

}  // namespace

std::string chart_style() {
  std::string light, dark, rules;
  for (const Colour& colour : kColours) {
    const std::string name = span_kind_name(colour.kind);
    light.append("--").append(name).append(":").append(colour.light).append(";");
    dark.append("--").append(name).append(":").append(colour.dark).append(";");
    rules.append("svg .").append(name).append("{fill:var(--").append(name).append(")}");
  }
  return ":root{" + light + "}@media(prefers-color-scheme:dark){:root{" + dark + "}}" + rules +
         "svg .edge{stroke:var(--page);stroke-width:.6}figure{margin:.2rem 0 1rem}"
         ".legend span{display:inline-block;margin-right:.9rem}"
         ".legend svg{width:.8rem;height:.8rem;margin-right:.3rem}";
}

std::string charts_of(std::span<const Timeline> timelines) {
  const double end_us = end_of(timelines);
  std::string text = legend(timelines);
  for (const Timeline& timeline : timelines) {
    text += "<h2>" + escaped(timeline.name) + "</h2>\n<figure>" + chart(timeline, end_us) +
            "</figure>\n";
  }
  return text;
}

}  // namespace outboard::cli
