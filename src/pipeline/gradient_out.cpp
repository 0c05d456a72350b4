// SPDX-License-Identifier: Apache-2.0
#include "pipeline/gradient_out.hpp"

#include "pipeline/added_time.hpp"

namespace outboard::pipeline {

void GradientOut::take(std::uint32_t index, const void* gradient, NativeStream stream) {
  Parameter& parameter = flow_.parameters[index];
  flow_.backend.record(parameter.ready,
                       stream);  // the one call that can refuse the caller's stream
  parameter.gradient = gradient;
  parameter.has_gradient = true;
  parameter.micro_batches += 1;
  if (flow_.has_device_sum(parameter)) return queue_sum(parameter, index);
  if (take_packed(index)) return;
  if (flow_.sums == nullptr) queue_norm(parameter, index);
  const bool first = parameter.micro_batches == 1;
  const bool last = parameter.micro_batches == flow_.options.micro_batches;
  for (std::uint32_t i = 0; i < parameter.segments.count; ++i) {
    const std::uint32_t segment = parameter.segments.first + i;
    const std::uint32_t bucket = flow_.layout.segments[segment].bucket;
    if (flow_.updated_on_device(bucket)) continue;  // read where it is
    flow_.segments[segment].copies_queued += 1;
    parameter.unlanded_copies += 1;
    if (flow_.buckets[bucket].slot.direct && flow_.sums == nullptr) {
      queue_copy(segment);
    } else {
      parameter.unqueued_copies += 1;
      flow_.buckets[bucket].ring->request_gradient({segment, first, last});
    }
  }
}

bool GradientOut::take_packed(std::uint32_t index) {
  Parameter& parameter = flow_.parameters[index];
  const std::uint32_t bucket = flow_.layout.segments[parameter.segments.first].bucket;
  Packing* packing = flow_.buckets[bucket].packing;
  void* scalars = scalars_ + sizeof(device::GradientScalars) * index;
  parameter.packed = packing != nullptr && packing->pack(index, scalars);
  if (!parameter.packed) return false;
  if (packing->complete(bucket)) send_packed(bucket);
  return true;
}

template <class Use>
void GradientOut::for_each_packed(std::uint32_t index, Use use) {
  const plan::Bucket& bucket = flow_.layout.buckets[index];
  for (std::uint32_t i = 0; i < bucket.segments; ++i) {
    const std::uint32_t segment = bucket.first_segment + i;
    if (bucket.packs(flow_.layout.segments[segment])) use(segment);
  }
}

/// Counts as a copy of each that could be in it: who has no gradient waits for none.
void GradientOut::send_packed(std::uint32_t bucket) {
  const device::Event landed = flow_.buckets[bucket].packing->queue_copy(bucket);
  for_each_packed(bucket, [&](std::uint32_t segment) {
    flow_.segments[segment].copies_queued += 1;
    flow_.parameters[flow_.layout.segments[segment].parameter].unlanded_copies += 1;
  });
  flow_.notify(landed, {&GradientOut::packed_landed, this, bucket});
}

void GradientOut::packed_landed(void* self, std::uint64_t bucket) noexcept {
  auto& stage = *static_cast<GradientOut*>(self);
  const std::lock_guard lock(stage.flow_.mutex);
  stage.for_each_packed(static_cast<std::uint32_t>(bucket),
                        [&](std::uint32_t segment) { stage.segment_landed(segment); });
  stage.flow_.finish_callback();
}

void GradientOut::finish(std::unique_lock<std::mutex>& lock) {
  for (std::uint32_t i = 0; i < flow_.buckets.size(); ++i) {
    const BucketRun& bucket = flow_.buckets[i];
    if (bucket.packing == nullptr || !bucket.packing->begun(i)) continue;
    if (bucket.updating) {
      const AddedTime time(flow_, flow_.stats.drain_wait_us);
      flow_.wait_until(
          lock, [&] { return !bucket.updating; }, "step(): the update of the step before");
    }
    if (bucket.packing->begun(i)) send_packed(i);
  }
  for (Packing* packing : flow_.packings) packing->end_step();
}

void GradientOut::queue_sum(const Parameter& parameter, std::uint32_t index) {
  flow_.backend.wait_event(flow_.norm, parameter.ready);
  // Behind the update of the step before, which reads the sum on the same stream. With an open gate
  // it has a stream of its own.
  for (std::uint32_t i = 0; flow_.open_gate() && i < parameter.segments.count; ++i) {
    const std::uint32_t bucket = flow_.layout.segments[parameter.segments.first + i].bucket;
    flow_.backend.wait_event(flow_.norm, flow_.buckets[bucket].refreshed);
  }
  flow_.backend.accumulate(flow_.norm,
                           {.grad = {parameter.gradient, optim::format_of(parameter.dtype)},
                            .sum_fp32 = resident_->sums(index),
                            .elems = parameter.elems,
                            .first = parameter.micro_batches == 1});
  flow_.backend.record(parameter.reduced, flow_.norm);  // read: the buffer may be used again
  if (parameter.micro_batches == flow_.options.micro_batches) queue_norm_of_sum(index);
}

void GradientOut::queue_norm_of_sum(std::uint32_t index) {
  flow_.backend.reduce_gradient(flow_.norm, {resident_->sums(index), simd::Format::f32},
                                flow_.parameters[index].elems,
                                scalars_ + sizeof(device::GradientScalars) * index);
}

void GradientOut::queue_norm(const Parameter& parameter, std::uint32_t index) {
  flow_.backend.wait_event(flow_.norm, parameter.ready);
  flow_.backend.reduce_gradient(flow_.norm, {parameter.gradient, optim::format_of(parameter.dtype)},
                                parameter.elems,
                                scalars_ + sizeof(device::GradientScalars) * index);
  flow_.backend.record(parameter.reduced, flow_.norm);
}

void GradientOut::queue_copy(std::uint32_t index) {
  const plan::Segment& segment = flow_.layout.segments[index];
  const Parameter& parameter = flow_.parameters[segment.parameter];
  const auto target = flow_.slot_bytes(segment);
  flow_.backend.wait_event(flow_.down, parameter.ready);
  // The slot still holds the weight of the step before until its upload has passed.
  flow_.backend.wait_event(flow_.down, flow_.buckets[segment.bucket].refreshed);
  flow_.backend.copy_to_host(target, flow_.gradient_address(segment), flow_.down);
  flow_.backend.record(flow_.segments[index].arrived, flow_.down);
  flow_.notify(flow_.segments[index].arrived, {&GradientOut::copy_landed, this, index});
  flow_.stats.gradient_bytes_down += target.size();
  flow_.stats.copies_down += 1;
}

void GradientOut::copy_landed(void* self, std::uint64_t segment) noexcept {
  auto& stage = *static_cast<GradientOut*>(self);
  const std::lock_guard lock(stage.flow_.mutex);
  stage.segment_landed(static_cast<std::uint32_t>(segment));
  stage.flow_.finish_callback();
}

void GradientOut::segment_landed(std::uint32_t segment) noexcept {
  SegmentRun& run = flow_.segments[segment];
  flow_.parameters[flow_.layout.segments[segment].parameter].unlanded_copies -= 1;
  if (++run.copies_landed == run.needed_landings) listener_.segment_arrived(segment);
}

void GradientOut::wait_taken(std::unique_lock<std::mutex>& lock, std::uint32_t index,
                             NativeStream stream) {
  const Parameter& parameter = flow_.parameters[index];
  flow_.wait_until(
      lock, [&] { return parameter.unqueued_copies == 0; },
      "wait_gradient_taken(): a copy that waits for the bounce ring");
  flow_.backend.wait_event(stream, parameter.reduced);
  if (parameter.packed) return;
  // Direct copies are queued in order on one stream, so the last covers them all. In the ring one
  // segment may overtake another.
  const std::uint32_t end = parameter.segments.first + parameter.segments.count;
  for (std::uint32_t i = end; i-- > parameter.segments.first;) {
    const BucketRun& bucket = flow_.buckets[flow_.layout.segments[i].bucket];
    if (bucket.home != plan::Home::host) continue;
    flow_.backend.wait_event(stream, flow_.segments[i].arrived);
    if (bucket.ring == nullptr) return;
  }
}

void GradientOut::drop() {
  for (BounceRing* ring : flow_.rings) ring->drop_gradients();
  for (Packing* packing : flow_.packings) packing->end_step();
  for (Parameter& parameter : flow_.parameters) {
    parameter.has_gradient = false;
    parameter.micro_batches = 0;
  }
}

}  // namespace outboard::pipeline
