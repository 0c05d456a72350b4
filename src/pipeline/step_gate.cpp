// SPDX-License-Identifier: Apache-2.0
#include "pipeline/step_gate.hpp"

#include <algorithm>
#include <cstring>

#include "core/show_number.hpp"
#include "pipeline/added_time.hpp"
#include "pipeline/host_sums.hpp"

namespace outboard::pipeline {
namespace {

using core::show_number;

std::string step_name(const StepResult& result) {
  return "step " + std::to_string(result.step);
}

std::string what_happened(const StepGate::Verdict& verdict) {
  if (verdict.updated == 0) return " skipped, nothing changed: ";
  return " partial, " + std::to_string(verdict.left_out) + " of " +
         std::to_string(verdict.updated + verdict.left_out) +
         " parameters left out and unchanged: ";
}

}  // namespace

StepGate::StepGate(Flow& flow, const GateSettings& settings, const void* scalars,
                   std::span<std::byte> host)
    : flow_(flow),
      settings_(settings),
      scaler_(settings.loss_scaling),
      scalars_(scalars),
      host_(host),
      fetched_(flow.backend.create_event()) {}

StepGate::~StepGate() {
  flow_.backend.destroy_event(fetched_);
}

StepGate::Verdict StepGate::decide(std::unique_lock<std::mutex>& lock, StepResult& result) {
  if (flow_.sums == nullptr || overflow_counts_) fetch_scalars(lock);
  const auto decision = optim::decide_step(totals(result), divisor(), settings_.max_grad_norm);
  result.grad_norm = decision.grad_norm;
  result.clip = decision.clip;
  result.loss_scale = scaler_.scale();
  Verdict verdict;
  verdict.apply = !decision.overflow;
  verdict.coeff = decision.coeff;
  verdict.skips_before = scaler_.overflows_in_a_row();
  if (verdict.apply) {
    scaler_.clean_step();
  } else {
    verdict.give_up = scaler_.overflow();
  }
  result.next_loss_scale = scaler_.scale();
  return verdict;
}

void StepGate::queue_fetch(std::uint32_t first, std::uint32_t count, NativeStream stream) {
  constexpr std::size_t each = sizeof(device::GradientScalars);
  queue_copy(first * each, count * each, stream);
}

double StepGate::open_coeff() const noexcept {
  return optim::decide_step({}, divisor(), 0.0).coeff;
}

bool StepGate::overflowed(std::uint32_t parameter) const {
  const device::GradientScalars scalars = scalars_of(parameter);
  if (scalars.non_finite > 0) return true;
  return optim::decide_step({.sum_of_squares = scalars.sum_of_squares}, divisor(), 0.0).overflow;
}

StepGate::Verdict StepGate::conclude(StepResult& result, std::uint32_t updated,
                                     std::uint32_t left_out) {
  result.grad_norm = optim::decide_step(totals(result), divisor(), 0.0).grad_norm;
  Verdict verdict;
  verdict.updated = updated;
  verdict.left_out = left_out;
  verdict.apply = left_out == 0;
  verdict.skips_before = scaler_.overflows_in_a_row();
  if (verdict.apply) {
    result.outcome = StepOutcome::applied;
    scaler_.clean_step();
  } else {
    result.outcome = updated > 0 ? StepOutcome::partial : StepOutcome::skipped;
    verdict.give_up = scaler_.overflow();
  }
  return verdict;
}

void StepGate::queue_overflow_counts(NativeStream stream) {
  if (!overflow_counts_ || !overflow_counts_there()) return;
  const std::size_t counts = flow_.gradient_scalar_bytes();
  queue_copy(counts, host_.size() - counts, stream);
  flow_.backend.record(fetched_, stream);
}

void StepGate::queue_copy(std::size_t from, std::size_t bytes, NativeStream stream) {
  flow_.backend.copy_to_host(host_.subspan(from, bytes),
                             static_cast<const std::byte*>(scalars_) + from, stream);
  flow_.stats.gate_bytes_down += bytes;
}

void StepGate::fetch_scalars(std::unique_lock<std::mutex>& lock) {
  queue_copy(0, overflow_counts_ ? host_.size() : flow_.gradient_scalar_bytes(), flow_.norm);
  flow_.backend.record(fetched_, flow_.norm);
  const AddedTime time(flow_, flow_.stats.gate_wait_us);
  flow_.synchronize(lock, fetched_, "step(): the gradients' norm");
}

device::GradientScalars StepGate::scalars_of(std::uint32_t parameter) const {
  if (flow_.sums != nullptr && flow_.parameters[parameter].device_segments == 0) {
    return flow_.sums->scalars(parameter);
  }
  device::GradientScalars scalars;
  std::memcpy(&scalars, host_.data() + parameter * sizeof(scalars), sizeof(scalars));
  return scalars;
}

optim::GradientTotals StepGate::totals(StepResult& result) const {
  optim::GradientTotals totals;
  for (std::uint32_t i = 0; i < flow_.parameters.size(); ++i) {
    if (!flow_.parameters[i].has_gradient) continue;
    const device::GradientScalars scalars = scalars_of(i);
    totals.sum_of_squares += scalars.sum_of_squares;
    if (scalars.non_finite == 0) continue;
    const bool is_nan = (scalars.first_non_finite & 1) != 0;
    (is_nan ? totals.any_nan : totals.any_inf) = true;
    if (result.non_finite) continue;
    result.non_finite = NonFinite{ParameterId{i}, flow_.parameters[i].name,
                                  scalars.first_non_finite >> 1, scalars.non_finite, is_nan};
  }
  return totals;
}

/// Why something was left out.
std::string StepGate::cause(const StepResult& result) const {
  if (result.non_finite) {
    const NonFinite& found = *result.non_finite;
    return "parameter '" + std::string(found.name) + "' has a gradient that is " +
           (found.is_nan ? "NaN" : "Inf") + " at element " + std::to_string(found.element) +
           ", the first of " + std::to_string(found.count) + " non-finite in that parameter";
  }
  const auto found = std::ranges::find(flow_.parameters, OpenState::left_out, &Parameter::open);
  if (found == flow_.parameters.end()) {
    return "every gradient is finite but their norm is " + show_number(result.grad_norm);
  }
  return "parameter '" + found->name +
         "' has a gradient whose elements are finite but whose norm is 2^63 or more";
}

bool StepGate::scaling() const noexcept {
  return settings_.loss_scaling.dynamic || settings_.loss_scaling.initial_scale != 1.0;
}

std::string StepGate::news(const Verdict& verdict, const StepResult& result) const {
  if (!verdict.apply && verdict.skips_before == 0) {
    return step_name(result) + what_happened(verdict) + cause(result) + scale_after_skip(result) +
           ". If more follow in a row, one line says so when a step is applied again";
  }
  if (!verdict.apply || verdict.skips_before < 2) return {};
  std::string text = step_name(result) + " applied after " + std::to_string(verdict.skips_before) +
                     (flow_.open_gate() ? " that left parameters out" : " skipped");
  if (!settings_.loss_scaling.dynamic) return text;
  return text + "; the loss scale settled at " + show_number(result.loss_scale) + ", from " +
         show_number(scaler_.scale_before_row());
}

std::string StepGate::scale_after_skip(const StepResult& result) const {
  if (!scaling()) return {};
  const std::string from = show_number(result.loss_scale);
  if (!settings_.loss_scaling.dynamic) return "; the loss scale is fixed at " + from;
  if (result.next_loss_scale == result.loss_scale) {
    return "; the loss scale is at its floor, " + from;
  }
  return "; the loss scale goes from " + from + " to " + show_number(result.next_loss_scale);
}

/// Every scale of the row: halvings leave no other way from its start to its end.
std::string StepGate::scale_history() const {
  if (!scaling()) return {};
  const std::string now = show_number(scaler_.scale());
  const std::uint32_t halvings = scaler_.halvings_in_row();
  if (halvings == 0) return "the loss scale stayed at " + now + " for all of them; ";
  std::string text = "the loss scale went from " + show_number(scaler_.scale_before_row()) +
                     " to " + now + " in " + std::to_string(halvings) + " halvings";
  const std::uint32_t at_floor = scaler_.overflows_in_a_row() - halvings;
  if (at_floor > 0) text += " and stayed there for " + std::to_string(at_floor) + " more";
  return text + "; ";
}

Error StepGate::give_up_error(const StepResult& result) const {
  return {ErrorCode::numerics,
          step_name(result) + ": " + std::to_string(scaler_.overflows_in_a_row()) +
              " steps in a row overflowed; " + scale_history() + "now " + cause(result) +
              ". Look for a diverged model or bad data; LossScaling::give_up_after sets the limit"};
}

std::uint64_t StepGate::device_overflows(std::uint32_t parameter) const {
  if (!overflow_counts_) return 0;
  std::uint64_t count = 0;
  const std::size_t counts = flow_.gradient_scalar_bytes();
  std::memcpy(&count, host_.data() + counts + parameter * sizeof(count), sizeof(count));
  return count;
}

}  // namespace outboard::pipeline
