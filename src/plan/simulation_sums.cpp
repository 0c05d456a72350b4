// SPDX-License-Identifier: Apache-2.0
// Accumulate::host: gradients of several micro-batches on their way into FP32 sums, which are where
// the state is.
#include <algorithm>

#include "plan/simulation.hpp"

namespace outboard::plan {
void Simulation::begin_sums() {
  micro_batch_ = 0;
  pass_due_ = false;
  ring_free_ = model_.ring_slots;
  sum_queue_.reset();
  for (Fifo& additions : additions_) additions.reset();
  std::ranges::fill(pieces_, PieceRun{});
  gradients_left_ *= simulated_;
  sums_left_ = gradients_left_;
  norms_left_ = 0;
  for (const StepModel::Backward& work : model_.backward) {
    const auto gradients = std::span(model_.gradients).subspan(work.first_gradient, work.gradients);
    const auto on_device = [&](const StepModel::Gradient& gradient) {
      return places_[gradient.bucket].home != Home::host;
    };
    if (std::ranges::any_of(gradients, on_device)) norms_left_ += simulated_;
  }
}

void Simulation::gradients_to_sums(std::uint32_t piece) {
  const StepModel::Backward& work = model_.backward[piece];
  const bool last = last_micro_batch();
  PieceRun& run = pieces_[piece];
  run.complete = last;
  bool on_device = false;
  double kernels_us = 0.0;
  for (std::uint32_t i = work.first_gradient; i < work.first_gradient + work.gradients; ++i) {
    const StepModel::Gradient& gradient = model_.gradients[i];
    BucketRun& bucket = runs_[gradient.bucket];
    if (last && --bucket.ungiven == 0) bucket.last_piece = piece;
    if (places_[gradient.bucket].home == Home::host) {
      run.untaken += 1;
      run.unadded += 1;
      sum_queue_.push(copy_op(OpKind::gradient, i, gradient.copies, gradient.bytes), now_us_);
      continue;
    }
    on_device = true;
    kernels_us += device_sum_us(gradient, micro_batch_ == 0, last);
    if (last) piece_known(gradient.bucket);
  }
  if (!last && piece + 1 == model_.backward.size()) pass_due_ = true;
  if (!on_device) return try_gate();
  if (kernels_us == 0.0) return norms_complete(piece);
  kernels_[kNorms].push({OpKind::norm, piece, kernels_us, 0}, now_us_);
}

double Simulation::device_sum_us(const StepModel::Gradient& gradient, bool first, bool last) const {
  return plan::device_sum_us(rates_,
                             {gradient.elems, gradient.bytes, gradient.parameters, first, last});
}

double Simulation::host_sum_us(const StepModel::Gradient& gradient) const {
  const std::uint32_t node = places_[gradient.bucket].node;
  const double per_s = rates_.node_sums_per_s.empty()
                           ? rates_.node_elems_per_s[node] * kSumsPerUpdate
                           : rates_.node_sums_per_s[node];
  return duration_us(static_cast<double>(gradient.elems), per_s);
}

void Simulation::sum_copied(const Op& op) {
  const StepModel::Gradient& gradient = model_.gradients[op.index];
  gradients_left_ -= 1;
  pieces_[gradient.piece].untaken -= 1;
  additions_[places_[gradient.bucket].node].push({OpKind::sum, op.index, host_sum_us(gradient), 0},
                                                 now_us_);
}

void Simulation::sum_added(const Op& op) {
  const std::uint32_t piece = model_.gradients[op.index].piece;
  ring_free_ += 1;
  sums_left_ -= 1;
  PieceRun& run = pieces_[piece];
  if (--run.unadded > 0 || !run.complete) return;
  // The norm of a parameter is that of all of its sum.
  const StepModel::Backward& work = model_.backward[piece];
  for (std::uint32_t i = work.first_gradient; i < work.first_gradient + work.gradients; ++i) {
    const std::uint32_t bucket = model_.gradients[i].bucket;
    if (places_[bucket].home != Home::host) continue;
    if (runs_[bucket].missing == 1 && schedule_ == StepSchedule::open) unknown_ -= 1;
    piece_known(bucket);
  }
  try_gate();
}

/// What one micro-batch between the first and the last takes of each resource.
Simulation::MicroBatch Simulation::micro_batch_between() {
  MicroBatch out;
  node_sum_us_.assign(ready_.size(), 0.0);
  double in_ring_us = 0.0;
  for (std::uint32_t p = 0; p < model_.backward.size(); ++p) {
    const StepModel::Backward& work = model_.backward[p];
    double copies_us = 0.0;
    for (std::uint32_t i = work.first_gradient; i < work.first_gradient + work.gradients; ++i) {
      const StepModel::Gradient& gradient = model_.gradients[i];
      const BucketPlace& place = places_[gradient.bucket];
      if (place.home != Home::host) {
        out.kernels_us += device_sum_us(gradient, false, false);
        continue;
      }
      const Op copy = copy_op(OpKind::gradient, i, gradient.copies, gradient.bytes);
      copies_us += copy.duration_us;
      out.bytes_down += copy.bytes;
      node_sum_us_[place.node] += host_sum_us(gradient);
      in_ring_us += copy.duration_us + host_sum_us(gradient);
    }
    out.down_us += copies_us;
    out.slowest_us = std::max(out.slowest_us, work.us + copies_us);  // its gradient's buffer
  }
  const double compute_us = model_.forward_us + model_.backward_us + out.kernels_us;
  out.slowest_us = std::max({out.slowest_us, compute_us, out.down_us,
                             in_ring_us / model_.ring_slots, std::ranges::max(node_sum_us_)});
  return out;
}

/// Those that were not simulated: the slowest resource never stops there.
void Simulation::add_other_micro_batches() {
  const std::uint32_t more = model_.micro_batches - simulated_;
  const MicroBatch each = micro_batch_between();
  const double work_us = model_.forward_us + model_.backward_us;
  for (std::size_t node = 0; node < node_sum_us_.size(); ++node) {
    result_.node_us[node] += more * node_sum_us_[node];
  }
  result_.step_us += more * each.slowest_us;
  result_.backward_us += more * work_us;
  result_.exposed.device_us += more * each.kernels_us;
  result_.exposed.gradients_us += more * (each.slowest_us - work_us - each.kernels_us);
  result_.compute_us += more * (work_us + each.kernels_us);
  result_.link_down_us += more * each.down_us;
  result_.bytes_down += more * each.bytes_down;
}

}  // namespace outboard::plan
