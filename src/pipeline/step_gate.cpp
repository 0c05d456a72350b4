// SPDX-License-Identifier: Apache-2.0
#include "pipeline/step_gate.hpp"

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

/// Why a step overflowed.
std::string cause(const StepResult& result) {
  if (!result.non_finite) {
    return "every gradient is finite but their norm is " + show_number(result.grad_norm);
  }
  const NonFinite& found = *result.non_finite;
  return "parameter '" + std::string(found.name) + "' has a gradient that is " +
         (found.is_nan ? "NaN" : "Inf") + " at element " + std::to_string(found.element) +
         ", the first of " + std::to_string(found.count) + " non-finite in that parameter";
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
  const double divisor = scaler_.scale() * settings_.accumulation;
  const auto decision = optim::decide_step(totals(result), divisor, settings_.max_grad_norm);
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

void StepGate::fetch_scalars(std::unique_lock<std::mutex>& lock) {
  const std::size_t scalars = flow_.parameters.size() * sizeof(device::GradientScalars);
  const auto host = overflow_counts_ ? host_ : host_.first(scalars);
  flow_.backend.copy_to_host(host, scalars_, flow_.norm);
  flow_.backend.record(fetched_, flow_.norm);
  flow_.stats.gate_bytes_down += host.size();
  const AddedTime time(flow_, flow_.stats.gate_wait_us);
  flow_.synchronize(lock, fetched_, "step(): the gradients' norm");
}

device::GradientScalars StepGate::scalars_of(std::uint32_t parameter) const {
  if (flow_.sums != nullptr && flow_.parameters[parameter].resident_segments == 0) {
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

bool StepGate::scaling() const noexcept {
  return settings_.loss_scaling.dynamic || settings_.loss_scaling.initial_scale != 1.0;
}

std::string StepGate::news(const Verdict& verdict, const StepResult& result) const {
  if (!verdict.apply && verdict.skips_before == 0) {
    return step_name(result) + " skipped, nothing changed: " + cause(result) +
           scale_after_skip(result) +
           ". If more are skipped in a row, one line says so when a step is applied again";
  }
  if (!verdict.apply || verdict.skips_before < 2) return {};
  std::string text =
      step_name(result) + " applied after " + std::to_string(verdict.skips_before) + " skipped";
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

std::uint64_t StepGate::resident_overflows(std::uint32_t parameter) const {
  if (!overflow_counts_) return 0;
  std::uint64_t count = 0;
  const std::size_t counts = flow_.parameters.size() * sizeof(device::GradientScalars);
  std::memcpy(&count, host_.data() + counts + parameter * sizeof(count), sizeof(count));
  return count;
}

}  // namespace outboard::pipeline
