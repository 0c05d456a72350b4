// SPDX-License-Identifier: Apache-2.0
#include "report.hpp"

#include <cinttypes>
#include <nlohmann/json.hpp>

#include "../common/format.hpp"

namespace text {
using example::outcome_of;
using example::print;
using example::show_bytes;
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

std::string held_out_line(std::uint64_t step, double model, double order1) {
  return print("%6" PRIu64 "  held out: %.4f nats/byte, order-1 model %.4f, difference %+.4f\n",
               step, model, order1, model - order1);
}

std::string json_line(const StepReport& report) {
  const outboard::StepResult& result = report.result;
  nlohmann::ordered_json json{
      {"step", result.step},
      {"loss", report.loss},
      {"loss_bits", print("%a", report.loss)},
      {"grad_norm", result.grad_norm},
      {"grad_norm_bits", print("%a", result.grad_norm)},
      {"clip", result.clip},
      {"loss_scale", result.loss_scale},
      {"outcome", outcome_of(result)},
      {"ms", report.ms},
  };
  if (report.digest) json["digest"] = show_digest(*report.digest);
  if (report.held_out) json["held_out"] = *report.held_out;
  if (report.held_out) json["held_out_bits"] = print("%a", *report.held_out);
  return json.dump();
}

std::string device_ledger_text(const DeviceLedger& ledger) {
  const std::size_t states = 16 * ledger.parameters;
  std::string text = print("device memory, %zu parameters\n", ledger.parameters);
  const auto line = [&text](const char* what, std::size_t bytes) {
    text += print("  %-28s %10s\n", what, show_bytes(bytes).c_str());
  };
  line("weights, FP16", ledger.weights);
  line("gradients, FP16", ledger.gradients);
  line("activations, tokens, loss", ledger.activations);
  line("the engine's", ledger.engine);
  line("used, in 256-byte steps", ledger.used);
  line("limit", ledger.limit);
  text += print("all states, 16 bytes per parameter: %s, %.2f times the limit\n",
                show_bytes(states).c_str(),
                static_cast<double>(states) / static_cast<double>(ledger.limit));
  return text;
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
  const double per_parameter = 1.0 / (static_cast<double>(report.parameters) * steps);
  text +=
      print("link: %.3f bytes down and %.3f up per parameter and step; gate %.0f bytes a step\n",
            static_cast<double>(stats.gradient_bytes_down) * per_parameter,
            static_cast<double>(stats.weight_bytes_up) * per_parameter,
            static_cast<double>(stats.gate_bytes_down) / steps);
  text += print("steps: %" PRIu64 " applied, %" PRIu64 " skipped; %.0f bytes of text per second\n",
                stats.steps_applied, stats.steps_skipped,
                static_cast<double>(report.batch) * steps / report.train_ms * 1e3);
  return text;
}

}  // namespace text
