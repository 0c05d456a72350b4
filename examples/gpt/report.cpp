// SPDX-License-Identifier: Apache-2.0
#include "report.hpp"

#include <algorithm>
#include <cinttypes>
#include <nlohmann/json.hpp>

#include "../common/format.hpp"
#include "../common/report.hpp"

namespace gpt {

using example::print;

std::string show_time(double seconds) {
  const auto s = static_cast<std::uint64_t>(std::max(0.0, seconds) + 0.5);
  if (s < 3600) return print("%" PRIu64 ":%02" PRIu64, s / 60, s % 60);
  return print("%" PRIu64 ":%02" PRIu64 ":%02" PRIu64, s / 3600, s / 60 % 60, s % 60);
}

std::string step_heading() {
  return "loss: nats per token; exposed: the device waits, and mostly for what; left: to the end\n"
         "held out: loss on text kept back, and that of counting what follows which two tokens\n\n"
         "   step     loss  grad norm        lr  loss scale        ms  tokens/s  "
         "exposed ms, cause       left\n";
}

std::string step_line(const StepReport& report) {
  const outboard::StepResult& result = report.result;
  std::string line = print("%7" PRIu64 "  %7.4f  %9.4f  %8.2e  %10.0f  %8.1f  %8.0f  ", result.step,
                           report.loss, result.grad_norm, report.lr, result.loss_scale, report.ms,
                           static_cast<double>(report.tokens) / report.ms * 1e3);
  line += report.split ? print("%8.1f %-9s", report.split->exposed(), report.split->cause())
                       : print("%8s %-9s", "-", "");
  line += print("  %8s", show_time(report.eta_s).c_str());
  if (!result.applied()) line += print("  %s", example::outcome_of(result));
  if (result.non_finite) line += ", non-finite: " + std::string(result.non_finite->name);
  if (report.digest) line += "  " + example::show_digest(*report.digest);
  return line;
}

std::string held_out_line(const StepReport& report, const char* unit) {
  return example::held_out_line(report.result.step, {.model = report.held_out.value_or(0.0),
                                                     .unit = unit,
                                                     .order = 2,
                                                     .counted = report.order2.value_or(0.0)});
}

std::string json_line(const StepReport& report) {
  nlohmann::ordered_json json = example::step_json(report.result, report.loss);
  json["lr"] = report.lr;
  json["steps_applied"] = report.applied;
  json["steps_skipped"] = report.skipped;
  json["ms"] = report.ms;
  json["tokens"] = report.tokens;
  json["update_busy_ms"] = report.update_busy_ms;
  if (report.split) {
    json["split_ms"] = {{"forward", report.split->forward},
                        {"backward", report.split->backward},
                        {"wait_weights", report.split->wait_weights},
                        {"wait_gradients", report.split->wait_gradients},
                        {"gate", report.split->gate},
                        {"other", report.split->other}};
  }
  if (report.digest) json["digest"] = example::show_digest(*report.digest);
  if (report.held_out) json["held_out"] = *report.held_out;
  if (report.held_out) json["held_out_bits"] = print("%a", *report.held_out);
  if (report.order2) json["order2"] = *report.order2;
  if (report.products) {
    json["products"] = {{"tokens_per_s", report.products->tokens_per_s},
                        {"flops_per_s", report.products->flops_per_s},
                        {"share", report.products->share},
                        {"threads", report.products->threads}};
  }
  return json.dump();
}

std::string time_text(const TimeReport& report) {
  const auto steps = static_cast<double>(report.steps);
  const outboard::StepStats& stats = report.stats;
  std::string text = print("where a step's time goes, mean of %" PRIu64 " steps, ms%s\n",
                           report.steps, report.split ? "" : " of virtual time");
  const auto line = [&](const char* what, double ms) {
    text += print("  %-60s %8.2f\n", what, ms / steps);
  };
  line("the whole step", report.ms);
  if (report.split) {
    line("forward kernels", report.split->forward);
    line("backward kernels", report.split->backward);
    line("exposed: forward waiting for refreshed weights", report.split->wait_weights);
    line("exposed: backward waiting for gradient buffers", report.split->wait_gradients);
    line("exposed: last copies, norm and step() after backward", report.split->gate);
    line("exposed: the host preparing the step", report.split->other);
  }
  line("host nodes busy with updates, beside all that", stats.update_busy_us * 1e-3);
  text += example::link_line(stats, report.parameters, report.steps);
  const double tokens_per_s = static_cast<double>(report.tokens) / report.ms * 1e3;
  text += print("steps: %" PRIu64 " applied, %" PRIu64 " skipped; %.0f tokens per second\n",
                stats.steps_applied, stats.steps_skipped, tokens_per_s);
  if (!report.products) return text;
  return text + print(
                    "tokens/s: %.0f; the matrix products alone would allow %.0f, at %.1f GFLOP/s "
                    "on %zu threads; share %.0f %%\n",
                    tokens_per_s, report.products->tokens_per_s,
                    report.products->flops_per_s * 1e-9, report.products->threads,
                    report.products->share * 100.0);
}

}  // namespace gpt
