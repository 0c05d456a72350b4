// SPDX-License-Identifier: Apache-2.0
// One step, in the order in which a gradient lives through it.
#include "pipeline/step.hpp"

#include <algorithm>

#include "pipeline/added_time.hpp"
#include "pipeline/guarded.hpp"

namespace outboard::pipeline {

// --- the gradient leaves ------------------------------------------------------------------------

void Pipeline::gradient_ready(ParameterId id, const void* gradient, NativeStream stream,
                              std::span<const optim::Group> groups) {
  guarded([&](auto& lock) {
    Parameter& parameter = flow_.parameters[id.value];
    require_gradient_allowed(parameter, gradient);
    if (parameter.elems == 0) return;
    if (open_gate_ && snapshot_->active() && !any_gradient()) {
      snapshot_->secure_device_buckets(lock);
      require_gradient_allowed(parameter, gradient);  // another thread may have given one meanwhile
    }
    if (flow_.options.micro_batches > 0) {
      const AddedTime time(flow_, flow_.stats.refresh_wait_us);
      flow_.wait_until(
          lock, [&] { return parameter.unqueued_copies == 0; },
          "gradient_ready(): the micro-batch before, which waits for the ring");
      require_gradient_allowed(parameter, gradient);  // another thread may have given one meanwhile
    }
    gradient_out_->take(id.value, gradient, stream);
    if (auto_) auto_->timer().gradient_given(id.value, stream);
    readers_->seen(stream);
    if (!open_gate_ || !gradient_complete(parameter)) return;
    open_gate_->gradient_given(id.value, groups[parameter.group]);
  });
}

bool Pipeline::gradient_complete(const Parameter& parameter) const {
  return parameter.micro_batches >= std::max(flow_.options.micro_batches, 1U);
}

void Pipeline::require_gradient_allowed(const Parameter& parameter, const void* gradient) const {
  if (flow_.options.micro_batches == 0 && parameter.has_gradient) {
    throw Error(ErrorCode::protocol_error,
                "gradient_ready(): a second gradient for " + quoted(parameter) +
                    " in one step; sum the micro-batches in the trainer and give the sum once, let "
                    "the engine add them up (Accumulate::host), or drop the first with discard()");
  }
  if (parameter.open != OpenState::waiting) {
    throw Error(ErrorCode::protocol_error,
                "gradient_ready(): " + quoted(parameter) + " has all " +
                    std::to_string(flow_.options.micro_batches) +
                    " micro-batches of this step, so under Schedule::open its update may have "
                    "begun; call step(), or set_accumulation() to more before the step");
  }
  if (parameter.refresh_unwaited) {
    throw Error(
        ErrorCode::protocol_error,
        "gradient_ready(): " + quoted(parameter) +
            " was refreshed by the last step() and nobody called wait() for it: this "
            "gradient may come from stale weights; call wait() before the forward reads it");
  }
  if (parameter.elems == 0) return;
  require_range(parameter, "gradient", gradient);
  require_range(parameter, "weight", parameter.weight);
}

void Pipeline::require_range(const Parameter& parameter, const char* what,
                             const void* address) const {
  const std::size_t size = dtype_bytes(parameter.dtype);
  if (reinterpret_cast<std::uintptr_t>(address) % size != 0) {
    throw Error(ErrorCode::invalid_argument, "gradient_ready(): " + quoted(parameter) + " has a " +
                                                 what + " that is not aligned to " +
                                                 std::to_string(size) + " bytes");
  }
  try {
    flow_.backend.check_range(address, parameter.elems * size);
  } catch (const Error& failure) {
    throw Error(failure.code(), "gradient_ready(): " + quoted(parameter) + " has a wrong " + what +
                                    " address: " + failure.what());
  }
}

void Pipeline::wait_gradient_taken(ParameterId id, NativeStream stream) {
  guarded([&](auto& lock) {
    const Parameter& parameter = flow_.parameters[id.value];
    if (parameter.elems == 0) return;
    if (remade_ && parameter.gradient == nullptr) return;
    const AddedTime time(flow_, flow_.stats.refresh_wait_us);
    if (parameter.gradient == nullptr) {
      throw Error(ErrorCode::protocol_error,
                  "wait_gradient_taken(): no gradient was ever given for " + quoted(parameter) +
                      "; call gradient_ready() first");
    }
    const bool in_place = flow_.read_in_place(parameter);
    // Accumulate::host: wherever its sum is, the gradient is read before step().
    const bool may_become = auto_ && flow_.options.micro_batches == 0;
    if (parameter.has_gradient && (in_place || may_become)) {
      const bool all = parameter.device_segments == parameter.segments.count;
      const char* how = may_become ? "may become " : all ? "is " : "is in part ";
      const char* what =
          flow_.streamed_count > 0 ? "streamed through the device" : "device-resident";
      throw Error(ErrorCode::protocol_error,
                  "wait_gradient_taken(): " + quoted(parameter) + " " + how + what +
                      ", so its gradient is read where it is by the update that "
                      "step() starts; call step() first, or keep a buffer for each gradient");
    }
    if (in_place) weight_in_->wait_refreshed(lock, id.value, stream);
    gradient_out_->wait_taken(lock, id.value, stream);
  });
}

void Pipeline::gradient_drained(std::uint32_t segment) noexcept {
  gradient_out_->segment_landed(segment);
  const std::uint32_t parameter = flow_.layout.segments[segment].parameter;
  if (!open_gate_ || !flow_.has_host_sum(flow_.parameters[parameter])) return;
  open_gate_->sum_landed(parameter);
}

// --- the gate -----------------------------------------------------------------------------------

StepResult Pipeline::step(std::span<const optim::Group> groups) {
  return guarded([&](auto& lock) {
    StepResult result;
    result.step = ++steps_;
    if (!open_gate_) wait_for_last_step(lock);
    report_weight_overflows();
    result.loss_scale = result.next_loss_scale = gate_->loss_scale();
    if (!any_gradient()) return result;
    gradient_out_->finish(lock);
    if (!open_gate_) snapshot_->secure_device_buckets(lock);
    if (open_gate_) {
      step_open(lock, groups, result);
      return result;
    }
    if (auto_) auto_->step_ends();
    if (flow_.options.micro_batches > 0) complete_sums(lock);
    if (auto_) auto_->nodes_idle();
    const StepGate::Verdict verdict = gate_->decide(lock, result);
    if (config_.log) warn(gate_->news(verdict, result));
    if (verdict.apply) {
      result.outcome = StepOutcome::applied;
      apply(lock, groups, verdict.coeff);
      if (auto_) place_automatically(lock);
    } else {
      result.outcome = StepOutcome::skipped;
      skip();
      if (verdict.give_up) throw gate_->give_up_error(result);
    }
    return result;
  });
}

void Pipeline::set_accumulation(std::uint32_t micro_batches) {
  guarded([&](auto&) {
    require_closed("set_accumulation()");
    if (any_gradient()) {
      throw Error(ErrorCode::protocol_error,
                  "set_accumulation() with gradients pending; call it before the first "
                  "gradient_ready() of a step, or discard() them");
    }
    gate_->set_accumulation(micro_batches);
    if (flow_.options.micro_batches > 0) flow_.options.micro_batches = micro_batches;
  });
}

bool Pipeline::any_gradient() const {
  return std::ranges::any_of(flow_.parameters, &Parameter::has_gradient);
}

/// Waits for the additions, and takes the norm of sums that got another number of micro-batches
/// than expected.
void Pipeline::complete_sums(std::unique_lock<std::mutex>& lock) {
  const AddedTime time(flow_, flow_.stats.gate_wait_us);
  flow_.wait_until(
      lock, [&] { return flow_.gradients_landing == 0; }, "step(): gradients on their way");
  for (std::uint32_t i = 0; i < flow_.parameters.size(); ++i) {
    const Parameter& parameter = flow_.parameters[i];
    if (!parameter.has_gradient || parameter.micro_batches == flow_.options.micro_batches) continue;
    if (flow_.has_device_sum(parameter)) {
      gradient_out_->queue_norm_of_sum(i);
      continue;
    }
    for (std::uint32_t k = 0; k < parameter.segments.count; ++k) {
      const std::uint32_t segment = parameter.segments.first + k;
      exec::Task task;
      task.node = flow_.layout.buckets[flow_.layout.segments[segment].bucket].node;
      task.parts = flow_.executor.threads(task.node);
      task.body = &Pipeline::reduce_sum;
      task.done = &Pipeline::sum_reduced;
      task.context = this;
      task.argument = segment;
      flow_.post(task);
      norms_pending_ += 1;
    }
  }
  flow_.wait_until(
      lock, [&] { return norms_pending_ == 0; }, "step(): norms of sums");
}

void Pipeline::reduce_sum(void* self, std::uint64_t segment, std::uint32_t part) noexcept {
  auto& pipeline = *static_cast<Pipeline*>(self);
  const auto index = static_cast<std::uint32_t>(segment);
  const plan::Segment& shape = pipeline.flow_.layout.segments[index];
  const std::uint32_t node = pipeline.flow_.layout.buckets[shape.bucket].node;
  pipeline.host_sums_->reduce(index, part, pipeline.flow_.executor.threads(node));
}

void Pipeline::sum_reduced(void* self, std::uint64_t /*segment*/) noexcept {
  auto& pipeline = *static_cast<Pipeline*>(self);
  const std::lock_guard lock(pipeline.flow_.mutex);
  pipeline.norms_pending_ -= 1;
  pipeline.flow_.finish_task();
}

void Pipeline::wait_for_last_step(std::unique_lock<std::mutex>& lock) {
  const AddedTime time(flow_, flow_.stats.drain_wait_us);
  flow_.wait_until(
      lock, [&] { return flow_.updates_running == 0 && flow_.uploads_unqueued == 0; },
      "step(): the updates of the step before");
}

void Pipeline::skip() {
  if (auto_) auto_->skipped();
  gradient_out_->drop();  // the readers stay: the next upload is ordered behind them too
  flow_.stats.steps_skipped += 1;
}

void Pipeline::apply(std::unique_lock<std::mutex>& lock, std::span<const optim::Group> groups,
                     double coeff) {
  if (config_.schedule == Schedule::serial) {
    // Its time is the plain sum of its parts: no update runs beside a copy that is still on its
    // way.
    const AddedTime time(flow_, flow_.stats.gate_wait_us);
    flow_.wait_until(
        lock, [&] { return flow_.tasks_pending == 0 && flow_.callbacks_pending == 0; },
        "step(): serial, the gradients' copies");
  }
  begin_update(groups, coeff);
  order_uploads_behind_readers();
  flow_.stats.steps_applied += 1;
  update_on_device();
  start_updates();
  if (config_.schedule != Schedule::exact) finish_in_step(lock);  // Schedule::open has its own way
}

/// Resident state first: it has nothing to wait for.
void Pipeline::update_on_device() {
  if (flow_.resident_count > 0) resident_->update(overflow_counts());
  if (flow_.streamed_count > 0) streamed_->update(overflow_counts());
}

void Pipeline::begin_update(std::span<const optim::Group> groups, double coeff) {
  flow_.epoch += 1;
  for (std::uint32_t i = 0; i < flow_.parameters.size(); ++i) {
    Parameter& parameter = flow_.parameters[i];
    const bool joins = parameter.has_gradient;
    parameter.has_gradient = false;
    parameter.micro_batches = 0;
    for (std::uint32_t k = 0; k < parameter.segments.count; ++k) {
      flow_.segments[parameter.segments.first + k].in_update = joins;
    }
    if (!joins) continue;
    take_settings(parameter, i, groups[parameter.group], coeff);
    join_update(parameter);
  }
}

void Pipeline::order_uploads_behind_readers() {
  if (flow_.device_count() < flow_.buckets.size()) readers_->order_behind(flow_.up);
  if (flow_.device_count() > 0) readers_->order_behind(flow_.norm);
  readers_->forget();
  if (!config_.check_waits) return;
  for (std::uint32_t i = 0; i < flow_.segments.size(); ++i) {
    if (!flow_.segments[i].in_update) continue;
    const plan::Segment& segment = flow_.layout.segments[i];
    const Parameter& parameter = flow_.parameters[segment.parameter];
    flow_.backend.fill(flow_.updated_on_device(segment.bucket) ? flow_.norm : flow_.up,
                       {flow_.weight_address(segment), optim::format_of(parameter.dtype)},
                       segment.elems, optim::nan_bits(parameter.dtype));
  }
}

// --- update and upload --------------------------------------------------------------------------

void Pipeline::start_updates() {
  for (std::uint32_t i = 0; i < flow_.layout.buckets.size(); ++i) {
    if (flow_.updated_on_device(i) || !flow_.takes_part(i)) continue;
    // Even if its upload could not be queued the bucket is updated: that raises the flag which the
    // up stream may wait for already.
    if (flow_.options.uploads_ahead) flow_.capture_failure([&] { weight_in_->queue_ahead(i); });
    update_->open(i);
  }
  // Not before all are open: one parameter's first phase may need every one of its buckets.
  flow_.throw_if_broken();
}

std::byte* Pipeline::overflow_counts() const {
  return scalars_.device_counts();
}

void Pipeline::bucket_updated(Ticket ticket) noexcept {
  if (config_.schedule == Schedule::serial) return;
  weight_in_->start(std::move(ticket));
}

void Pipeline::bucket_secured(std::uint32_t bucket) noexcept {
  update_->begin(bucket);
}

void Pipeline::weight_queued(std::uint32_t bucket) noexcept {
  weight_in_->finish(bucket);
}

void Pipeline::upload_serially(std::unique_lock<std::mutex>& lock) {
  flow_.wait_until(
      lock, [&] { return flow_.updates_running == 0; }, "step(): serial updates");
  for (std::uint32_t i = 0; i < flow_.layout.buckets.size(); ++i) {
    if (flow_.buckets[i].updating) weight_in_->start(i);
  }
}

void Pipeline::finish_in_step(std::unique_lock<std::mutex>& lock) {
  const AddedTime time(flow_, flow_.stats.finish_wait_us);
  if (config_.schedule == Schedule::serial) upload_serially(lock);
  synchronize_uploads(lock);
  if (config_.schedule != Schedule::blocking) return;
  for (Parameter& parameter : flow_.parameters) parameter.refresh_unwaited = false;
}

void Pipeline::synchronize_uploads(std::unique_lock<std::mutex>& lock) {
  flow_.wait_until(
      lock, [&] { return flow_.updates_running == 0 && flow_.uploads_unqueued == 0; },
      "the updates and uploads of the last step");
  if (flow_.resident_count > 0) resident_->order_behind_updates(flow_.up);
  if (flow_.streamed_count > 0) streamed_->order_behind_updates(flow_.up);
  for (Packing* packing : flow_.packings) packing->order_behind_unpacking(flow_.up);
  flow_.backend.record(uploads_passed_, flow_.up);
  flow_.synchronize(lock, uploads_passed_, "the uploads of refreshed weights");
}

/// Streamed state is on the host again too.
void Pipeline::synchronize_all(std::unique_lock<std::mutex>& lock) {
  if (flow_.streamed_count > 0) streamed_->order_behind_copies(flow_.up);
  synchronize_uploads(lock);
}

// --- the weight is back -------------------------------------------------------------------------

void Pipeline::wait(ParameterId id, NativeStream stream) {
  guarded([&](auto& lock) {
    Parameter& parameter = flow_.parameters[id.value];
    if (parameter.open != OpenState::waiting) {
      throw Error(ErrorCode::protocol_error,
                  "wait(): " + quoted(parameter) +
                      " has its gradient of this step, so under Schedule::open it is being "
                      "refreshed; call step() before wait()");
    }
    readers_->seen(stream);
    const AddedTime time(flow_, flow_.stats.refresh_wait_us);
    if (auto_) auto_->timer().wait_begins(id.value, stream);
    weight_in_->wait_refreshed(lock, id.value, stream);
    if (auto_) auto_->timer().wait_ends(id.value, stream);
    parameter.refresh_unwaited = false;
  });
}

void Pipeline::discard() {
  guarded([&](auto& lock) {
    require_closed("discard()");
    if (open_gate_) return;
    // Gradients of the step before may still wait for the ring, where they look like these.
    if (!flow_.rings.empty()) wait_for_last_step(lock);
    gradient_out_->drop();
    if (auto_) auto_->restarted();
  });
}

}  // namespace outboard::pipeline
