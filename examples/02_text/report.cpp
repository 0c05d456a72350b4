// SPDX-License-Identifier: Apache-2.0
#include "report.hpp"

#include <cinttypes>
#include <nlohmann/json.hpp>

#include "../common/format.hpp"
#include "../common/report.hpp"

namespace text {
using example::outcome_of;
using example::print;
using example::show_digest;

std::string step_heading() {
  return "  step     loss  grad norm  loss scale  update        ms   bytes/s\n";
}

std::string step_line(const StepReport& report) {
  const outboard::StepResult& result = report.result;
  const double bytes_per_s = static_cast<double>(report.batch) / report.ms * 1e3;
  std::string line =
      print("%6" PRIu64 "  %7.4f  %9.4f  %10.0f  %-7s  %8.1f  %8.0f", result.step, report.loss,
            result.grad_norm, result.loss_scale, outcome_of(result), report.ms, bytes_per_s);
  if (report.digest) line += "  " + show_digest(*report.digest);
  if (result.non_finite) line += "  non-finite: " + std::string(result.non_finite->name);
  return line + "\n";
}

std::string json_line(const StepReport& report) {
  nlohmann::ordered_json json = example::step_json(report.result, report.loss);
  json["ms"] = report.ms;
  if (report.digest) json["digest"] = show_digest(*report.digest);
  if (report.held_out) json["held_out"] = *report.held_out;
  if (report.held_out) json["held_out_bits"] = print("%a", *report.held_out);
  return json.dump();
}

std::string time_text(const TimeReport& report) {
  const auto steps = static_cast<double>(report.steps);
  const outboard::StepStats& stats = report.stats;
  std::string text =
      print("where a step's time goes, mean of %" PRIu64 " steps, ms%s\n", report.steps,
            report.virtual_time ? " (waits and updates: virtual time)" : "");
  const auto line = [&](const char* what, double ms) {
    text += print("  %-60s %8.2f\n", what, ms / steps);
  };
  line("the whole step", report.train_ms);
  line("device busy with forward and backward", report.kernel_ms);
  line("step() waiting for the end of backward and the norm", stats.gate_wait_us * 1e-3);
  line("step() waiting for the updates of the step before", stats.drain_wait_us * 1e-3);
  line("waits for refreshed weights that held up the host", stats.refresh_wait_us * 1e-3);
  line("host nodes busy with updates, beside all that", stats.update_busy_us * 1e-3);
  text += example::link_line(stats, report.parameters, report.steps);
  text += print("steps: %" PRIu64 " applied, %" PRIu64 " skipped; %.0f bytes of text per second\n",
                stats.steps_applied, stats.steps_skipped,
                static_cast<double>(report.batch) * steps / report.train_ms * 1e3);
  return text;
}

}  // namespace text
