// SPDX-License-Identifier: Apache-2.0
// What follows when an operation ends, the gate, and what idle time is charged to.
#include <algorithm>
#include <functional>

#include "plan/simulation.hpp"

namespace outboard::plan {

// --- what ends ----------------------------------------------------------------------------------

void Simulation::finish(std::size_t index) {
  units_[index].busy = false;
  result_.events += 1;
  const Op op = units_[index].op;
  switch (op.kind) {
    case OpKind::backward:
      trainer_ended_us_ = now_us_;
      return finish_backward(op.index);
    case OpKind::forward:
      trainer_ended_us_ = now_us_;
      forward_left_ -= 1;
      return;
    case OpKind::pass:
      trainer_ended_us_ = now_us_;
      next_backward_ = 0;
      return;
    case OpKind::norm:
      return norms_complete(op.index);
    case OpKind::gradient:
      if (sums()) return sum_copied(op);
      gradients_left_ -= 1;
      piece_known(op.index);
      return try_gate();
    case OpKind::sum:
      return sum_added(op);
    case OpKind::gate:
      if (schedule_ == StepSchedule::open) return scalars_known(op.index);
      gate_ = Gate::known;
      return try_gate();
    case OpKind::update:
      return finish_update(op.index);
    case OpKind::weight:
      if (rest_sent_) return;  // what the bucket packs goes next
      return unpack(op.index);
    case OpKind::unpack:
      free_unpack_buffers_ += 1;
      return refresh(op.index);
    case OpKind::state_in:
      runs_[op.index].state_here = true;
      return post_if_ready(op.index);
    case OpKind::state_out:
      runs_[op.index].state_leaving = false;
      free_buffers_ += 1;
      return;
  }
}

void Simulation::finish_backward(std::uint32_t piece) {
  backward_left_ -= 1;
  if (sums()) return gradients_to_sums(piece);
  const StepModel::Backward& work = model_.backward[piece];
  std::uint64_t packed_elems = 0;
  for (std::uint32_t i = 0; i < work.gradients; ++i) {
    const StepModel::Gradient& gradient = model_.gradients[work.first_gradient + i];
    if (--runs_[gradient.bucket].ungiven == 0) runs_[gradient.bucket].last_piece = piece;
    if (places_[gradient.bucket].home != Home::host) {
      piece_known(gradient.bucket);
      continue;
    }
    packed_elems += gradient.packed_elems;
    if (gradient.packed_elems == 0) send_gradient(gradient);
  }
  if (work.norms == 0) return try_gate();
  // A packed gradient is written as well as read.
  const auto elems = static_cast<double>(work.norm_elems + packed_elems);
  const double us = work.norms * rates_.kernel_us + duration_us(elems, rates_.norm_elems_per_s);
  if (us == 0.0) return norms_complete(piece);
  kernels_[kNorms].push({OpKind::norm, piece, us, 0}, now_us_);
}

void Simulation::send_gradient(const StepModel::Gradient& gradient) {
  if (gradient.copies > 0) {
    down_queue_.push(copy_op(OpKind::gradient, gradient.bucket, gradient.copies, gradient.bytes),
                     now_us_);
    return;
  }
  gradients_left_ -= 1;  // with a later one of its bucket
  piece_known(gradient.bucket);
}

/// The kernel that takes a norm packs, too.
void Simulation::norms_complete(std::uint32_t piece) {
  const StepModel::Backward& work = model_.backward[piece];
  norms_left_ -= sums() ? 1 : work.norms;
  for (std::uint32_t i = 0; i < work.gradients && !sums(); ++i) {
    const StepModel::Gradient& gradient = model_.gradients[work.first_gradient + i];
    const bool on_host = places_[gradient.bucket].home == Home::host;
    if (on_host && gradient.packed_elems > 0) send_gradient(gradient);
  }
  if (schedule_ == StepSchedule::open) return ask_for_scalars(piece);
  try_gate();
}

/// Behind the last gradient of a bucket the scalars of all its parameters go to the host.
void Simulation::ask_for_scalars(std::uint32_t piece) {
  const StepModel::Backward& work = model_.backward[piece];
  if (sums() && !last_micro_batch()) return;
  unasked_ += work.norms;
  for (std::uint32_t i = 0; i < work.gradients; ++i) {
    const std::uint32_t bucket = model_.gradients[work.first_gradient + i].bucket;
    const BucketRun& run = runs_[bucket];
    if (run.ungiven > 0 || run.last_piece != piece || !judged_by_scalars(bucket)) continue;
    scalars_queue_.push(copy_op(OpKind::gate, piece, 1, std::uint64_t{unasked_} * scalars_bytes_),
                        now_us_);
    unasked_ = 0;
    return;
  }
}

void Simulation::scalars_known(std::uint32_t piece) {
  const StepModel::Backward& work = model_.backward[piece];
  for (std::uint32_t i = 0; i < work.gradients; ++i) {
    const std::uint32_t bucket = model_.gradients[work.first_gradient + i].bucket;
    if (runs_[bucket].ungiven > 0 || runs_[bucket].last_piece != piece) continue;
    if (!judged_by_scalars(bucket)) continue;
    unknown_ -= 1;
    runs_[bucket].unjudged = false;
    piece_known(bucket);
  }
}

void Simulation::piece_known(std::uint32_t bucket) {
  runs_[bucket].missing -= 1;
  post_if_ready(bucket);
}

void Simulation::post_if_ready(std::uint32_t bucket) {
  BucketRun& run = runs_[bucket];
  if (gate_ != Gate::open || run.missing > 0 || run.posted) return;
  const BucketPlace& place = places_[bucket];
  if (place.home == Home::device_streamed && !run.state_here) return;
  run.posted = true;
  if (place.home == Home::host) {
    ready_[place.node].push_back(bucket);
    std::ranges::push_heap(ready_[place.node], std::greater<>());
  } else {
    kernels_[kUpdates].push(device_update(bucket), now_us_);
  }
}

void Simulation::finish_update(std::uint32_t bucket) {
  BucketRun& run = runs_[bucket];
  run.updated = true;
  if (places_[bucket].home == Home::host) {
    updates_left_ -= 1;
    if (schedule_ != StepSchedule::open) return;
    open_uploads_.push_back(bucket);
    return;
  }
  refresh(bucket);
  if (places_[bucket].home == Home::device_resident) return;
  run.state_here = false;
  run.state_leaving = true;
  down_queue_.push(state_op(OpKind::state_out, bucket), now_us_);
}

/// Packed weights are read and written on the device once more before somebody may read them.
void Simulation::unpack(std::uint32_t bucket) {
  const StepModel::Bucket& shape = model_.buckets[bucket];
  const auto elems = static_cast<double>(2 * shape.packed_elems);
  const double us = shape.unpacks * rates_.kernel_us + duration_us(elems, rates_.norm_elems_per_s);
  if (us == 0.0) {
    free_unpack_buffers_ += shape.unpacks > 0 ? 1 : 0;
    return refresh(bucket);
  }
  kernels_[kUnpacks].push({OpKind::unpack, bucket, us, 0}, now_us_);
}

void Simulation::refresh(std::uint32_t bucket) {
  runs_[bucket].refreshed = true;
  runs_[bucket].refreshed_us = now_us_;
  unrefreshed_ -= 1;
}

// --- the gate -----------------------------------------------------------------------------------

void Simulation::try_gate() {
  if (backward_left_ > 0 || norms_left_ > 0 || gate_ == Gate::open) return;
  if (sums_left_ > 0) return;
  if (gate_ == Gate::closed && sums() && !device_has_state_) gate_ = Gate::known;
  if (gate_ == Gate::closed) {
    gate_ = Gate::queued;
    scalars_queue_.push(copy_op(OpKind::gate, 0, 1, model_.parameters * scalars_bytes_), now_us_);
  }
  if (gate_ == Gate::known && (schedule_ != StepSchedule::serial || gradients_left_ == 0)) {
    open_gate();
  }
}

void Simulation::open_gate() {
  gate_ = Gate::open;
  for (std::uint32_t b = 0; b < runs_.size(); ++b) post_if_ready(b);
}

// --- what the device waits for ------------------------------------------------------------------

double& Simulation::exposed_while_idle() {
  ExposedTime& exposed = result_.exposed;
  if (gate_ == Gate::known || sums_left_ > 0) return exposed.gradients_us;
  if (gate_ != Gate::open) return exposed.gate_us;
  const BucketRun& run = runs_[blocked_on_];
  const std::uint32_t scalars = run.unjudged ? 1 : 0;
  if (run.missing > scalars) return exposed.gradients_us;
  if (run.unjudged || run.refreshed) return exposed.gate_us;  // refreshed: of other buckets
  // No weight may leave before the last update.
  if (schedule_ == StepSchedule::serial && updates_left_ > 0) return exposed.update_us;
  if (places_[blocked_on_].home == Home::host) {
    return run.updated ? exposed.weights_us : exposed.update_us;
  }
  return run.state_here ? exposed.device_us : exposed.weights_us;
}

void Simulation::charge_exposed(double us) {
  const Unit& compute = units_[kCompute];
  const OpKind kind = compute.op.kind;
  const bool of_trainer =
      kind == OpKind::backward || kind == OpKind::forward || kind == OpKind::pass;
  if (compute.busy && of_trainer) return;
  (compute.busy ? result_.exposed.device_us : exposed_while_idle()) += us;
}

}  // namespace outboard::plan
