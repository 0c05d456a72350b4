// SPDX-License-Identifier: Apache-2.0
// A plan as a page: its figures, and the predicted step drawn.
#include "cli/page.hpp"
#include "cli/plan_request.hpp"
#include "cli/timeline.hpp"
#include "outboard/version.hpp"

namespace outboard::cli {

std::string plan_html(const PlanReport& report) {
  const std::vector<Timeline> timelines = plan_timelines(report.request, report.free_bytes);
  const std::string name =
      report.request.shape.name.empty() ? "usual proportions" : report.request.shape.name;
  return page(
      "outboard plan", chart_style() + "pre{font:13px ui-monospace,monospace;overflow:auto}",
      "<h1>A step of " + escaped(name) + ", predicted</h1>\n<p>outboard " + kVersion +
          "; from the end of one forward to the end of the next</p>\n" + charts_of(timelines) +
          "<h2>Figures</h2>\n<pre>" + escaped(plan_text(report)) + "</pre>\n");
}

}  // namespace outboard::cli
