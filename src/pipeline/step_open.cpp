// SPDX-License-Identifier: Apache-2.0
// What Schedule::open does in place of the gate.
#include "outboard/error.hpp"
#include "pipeline/step.hpp"

namespace outboard::pipeline {

void Pipeline::require_closed(const char* call) const {
  if (!open_gate_ || !any_gradient()) return;
  throw Error(ErrorCode::protocol_error,
              std::string(call) +
                  " with gradients of this step given; under Schedule::open their updates may have "
                  "begun, with the hyper-parameters of the first: call step() first");
}

void Pipeline::require_between_steps(const char* call) {
  const std::lock_guard lock(flow_.mutex);
  require_closed(call);
}

void Pipeline::step_open(std::unique_lock<std::mutex>& lock, std::span<const optim::Group> groups,
                         StepResult& result) {
  if (flow_.options.micro_batches > 0) complete_sums(lock);
  for (std::uint32_t i = 0; i < flow_.parameters.size(); ++i) {
    const Parameter& parameter = flow_.parameters[i];
    if (!parameter.has_gradient || parameter.open != OpenState::waiting) continue;
    open_gate_->gradient_given(i, groups[parameter.group]);
  }
  open_gate_->finish(lock);
  gate_->queue_overflow_counts(flow_.device_updates);
  // What was queued to read weights until now does so before the next step's refreshes.
  readers_->order_behind(flow_.past_readers);
  readers_->forget();
  finish_open(result);
}

void Pipeline::finish_open(StepResult& result) {
  const auto verdict = gate_->conclude(result, open_gate_->updated(), open_gate_->left_out());
  if (config_.log) warn(gate_->news(verdict, result));
  flow_.stats.steps_applied += result.applied() ? 1 : 0;
  flow_.stats.steps_skipped += result.skipped() ? 1 : 0;
  flow_.stats.steps_partial += result.partial() ? 1 : 0;
  flow_.stats.parameters_left_out += verdict.left_out;
  std::optional<Error> failure;
  if (verdict.give_up) failure = gate_->give_up_error(result);
  open_gate_->reset();
  for (Parameter& parameter : flow_.parameters) {
    parameter.has_gradient = false;
    parameter.micro_batches = 0;
  }
  if (failure) throw Error(*failure);
}

void Pipeline::parameter_joins(std::uint32_t parameter) {
  const Parameter& joining = flow_.parameters[parameter];
  if (joining.two_phase && joining.resident_segments > 0) resident_->measure(parameter);
}

void Pipeline::bucket_opens(std::uint32_t bucket) {
  if (!flow_.updated_on_device(bucket)) return update_->open(bucket);
  flow_.order_behind_readers(bucket, flow_.device_updates);
  if (flow_.is_resident(bucket)) return resident_->update_bucket(bucket, overflow_counts());
  streamed_->update_bucket(bucket, overflow_counts());
}

}  // namespace outboard::pipeline
