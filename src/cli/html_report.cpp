// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "cli/page.hpp"
#include "cli/report.hpp"
#include "outboard/version.hpp"

namespace outboard::cli {
namespace {

using update_bench::Measurement;
using update_bench::name_of;
using update_bench::ratios;
using update_bench::summarize;
using update_bench::Summary;

const char* const kColours =
    ":root{--ours:#0b6e99;--roof:#b4bec8}"
    "@media(prefers-color-scheme:dark){:root{--ours:#4fb3e0;--roof:#57606a}}"
    "svg .spread{stroke:var(--ink)}svg .ours{fill:var(--ours)}svg .roof{fill:var(--roof)}";

constexpr double kLeft = 210;
constexpr double kRight = 90;
constexpr double kWidth = 920;
constexpr double kRowHeight = 62;
constexpr double kBarHeight = 18;
constexpr double kTop = 34;

/// Rates have the quartiles of the times, turned round.
Summary rate_of(double bytes, const std::vector<double>& ns) {
  std::vector<double> rates;
  rates.reserve(ns.size());
  for (const double value : ns) rates.push_back(bytes / value);
  return summarize(rates);
}

double top_rate(const Report& report) {
  double top = 1.0;
  for (const Measurement& m : report.measurements) {
    top = std::max({top, rate_of(m.bytes_per_param, m.update).high,
                    rate_of(update_bench::kRoofBytes, m.roof).high});
  }
  return top;
}

struct Bar {
  const char* style;
  double y;
  Summary rate;
  std::string label;
};

std::string draw(const Bar& bar, double per_gb) {
  const double middle = bar.y + kBarHeight / 2;
  return print("<rect class=\"%s\" x=\"%g\" y=\"%g\" width=\"%.1f\" height=\"%g\" rx=\"2\"/>",
               bar.style, kLeft, bar.y, bar.rate.median * per_gb, kBarHeight) +
         print("<line class=\"spread\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%g\" y2=\"%g\"/>",
               kLeft + bar.rate.low * per_gb, kLeft + bar.rate.high * per_gb, middle, middle) +
         print("<text x=\"%.1f\" y=\"%g\">%s</text>\n",
               kLeft + std::max(bar.rate.median, bar.rate.high) * per_gb + 8, middle + 4,
               bar.label.c_str());
}

std::string draw_rows(const Report& report, double per_gb) {
  std::string text;
  double y = kTop;
  for (const Measurement& m : report.measurements) {
    text +=
        print("<text x=\"0\" y=\"%g\">%s</text><text class=\"soft\" x=\"0\" y=\"%g\">%s %s</text>",
              y + 16, size_of(m).c_str(), y + 34, std::string(name_of(m.workload.rule)).c_str(),
              formats_of(m.workload).c_str());
    const Summary rate = rate_of(m.bytes_per_param, m.update);
    const double share = summarize(m.share_of_roof()).median;
    text += draw({"ours", y, rate, print("%.1f (%.2f)", rate.median, share)}, per_gb);
    const Summary roof = rate_of(update_bench::kRoofBytes, m.roof);
    text += draw({"roof", y + kBarHeight + 4, roof, print("%.1f", roof.median)}, per_gb);
    y += kRowHeight;
  }
  return text;
}

std::string chart(const Report& report) {
  const double per_gb = (kWidth - kLeft - kRight) / top_rate(report);
  const double height = kTop + kRowHeight * static_cast<double>(report.measurements.size());
  return print("<svg viewBox=\"0 0 %g %g\" role=\"img\" aria-label=\"update and roof in GB/s\">",
               kWidth, height) +
         print(
             "<text class=\"soft\" x=\"%g\" y=\"16\">GB/s: the update (share of the roof) above, "
             "the roof below; the line spans the quartiles</text>"
             "<line class=\"axis\" x1=\"%g\" x2=\"%g\" y1=\"24\" y2=\"%g\"/>\n",
             kLeft, kLeft, kLeft, height - 8) +
         draw_rows(report, per_gb) + "</svg>";
}

std::string more_cells(const Measurement& m) {
  std::string text;
  if (!m.one_tensor.empty()) {
    text += print("%.3f of one tensor's time ", summarize(ratios(m.update, m.one_tensor)).median);
  }
  if (!m.subnormal.empty()) {
    text += print("subnormal over normal %.3f", summarize(ratios(m.subnormal, m.normal)).median);
  }
  return text;
}

std::string table(const Report& report) {
  std::string text =
      "<table><tr><th>parameters</th><th>rule</th><th>formats</th><th>ns/param</th><th>B/param</th>"
      "<th>GB/s</th><th>roof</th><th>share (quartiles)</th><th>triad</th><th>pages</th>"
      "<th>same bits</th><th></th></tr>\n";
  for (const Measurement& m : report.measurements) {
    const Summary ns = summarize(m.update);
    const Summary share = summarize(m.share_of_roof());
    text += print("<tr><td>%s</td><td>%s</td><td>%s</td>", size_of(m).c_str(),
                  std::string(name_of(m.workload.rule)).c_str(), formats_of(m.workload).c_str());
    text +=
        print("<td>%.3f</td><td>%.0f</td><td>%.1f</td><td>%.1f</td>", ns.median, m.bytes_per_param,
              m.bytes_per_param / ns.median, update_bench::kRoofBytes / summarize(m.roof).median);
    text += print(
        "<td>%.3f (%.3f to %.3f)</td><td>%.1f</td><td>%s</td><td>%s</td><td>%s</td></tr>\n",
        share.median, share.low, share.high, update_bench::kTriadBytes / summarize(m.triad).median,
        pages_of(m).c_str(), m.check.equal ? "yes" : "NO", more_cells(m).c_str());
  }
  return text + "</table>";
}

}  // namespace

std::string html_of(const Report& report) {
  const update_bench::MachineInfo& machine = report.machine;
  return page(
      "outboard bench update", kColours,
      "<h1>The update against the memory</h1>\n<p><code>" + escaped(report.command) +
          "</code></p>\n<p>outboard " + kVersion + " · " + escaped(machine.processor) + " · " +
          machine.isa + " · " + escaped(threads_of(machine)) + "</p>\n<figure>" + chart(report) +
          "</figure>\n<div class=\"wide\">" + table(report) +
          "</div>\n<p>The roof: three FP32 streams read and written (24 bytes per parameter) on "
          "the "
          "same threads and pages, taken in turns with the update. Share: median over the repeats "
          "of the ratio of both rates.</p>\n<p>" +
          escaped(machine.notes) + "</p>\n");
}

}  // namespace outboard::cli
