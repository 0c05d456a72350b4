// SPDX-License-Identifier: Apache-2.0
// Measured steps as a page: a table, and each way's timeline beside its prediction.
#include "cli/bench_step.hpp"
#include "cli/page.hpp"
#include "cli/report.hpp"
#include "cli/timeline.hpp"
#include "outboard/version.hpp"

namespace outboard::cli {
namespace {

using step_bench::Clock;
using step_bench::StepBench;
using step_bench::WayResult;

std::string cells(const WayResult& r) {
  const step_bench::Exposed& e = r.mean.exposed;
  return print("<tr><td>%s%s</td><td>%.3f</td><td>%.3f</td><td>%.4f</td><td>%.1f %%</td>",
               r.way->name, r.clock == Clock::real ? ", real time" : "", r.mean.step * 1e-3,
               r.bound_us * 1e-3, r.ratio(), 100.0 * r.overlap()) +
         print("<td>%.3f</td><td>%+.3f %%</td>", r.predicted.step_us * 1e-3,
               100.0 * r.prediction_error()) +
         print("<td>%.3f</td><td>%.3f</td><td>%.3f</td><td>%.3f</td><td>%.3f</td></tr>\n",
               e.gradients * 1e-3, e.gate * 1e-3, e.update * 1e-3, e.weights * 1e-3,
               e.device * 1e-3);
}

std::string table(const StepBench& bench) {
  std::string text =
      "<div class=\"wide\"><table><tr><th>ms</th><th>step</th><th>bound</th><th>ratio</th>"
      "<th>hidden</th><th>predicted</th><th>error</th><th>gradients</th><th>gate</th>"
      "<th>update</th><th>weights</th><th>device</th></tr>\n";
  for (const WayResult& result : bench.results) text += cells(result);
  return text +
         "</table></div>\n<p>Ratio: the longest step over its bound. Hidden: share of what link, "
         "host and device do for the engine while the trainer's kernels run. On the right, time in "
         "which the device does none of the trainer's work, by what it waits for; device: the "
         "engine's own kernels.</p>\n";
}

}  // namespace

std::string step_html(const StepBench& bench, const std::string& command) {
  return page("outboard bench step", chart_style(),
              "<h1>Steps, from the end of one forward to the end of the next</h1>\n<p><code>" +
                  escaped(command) + "</code></p>\n<p>outboard " + kVersion + "</p>\n" +
                  table(bench) + charts_of(step_timelines(bench)));
}

}  // namespace outboard::cli
