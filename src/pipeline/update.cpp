// SPDX-License-Identifier: Apache-2.0
#include "pipeline/update.hpp"

#include <algorithm>

#include "pipeline/host_sums.hpp"
#include "simd/adamw.hpp"

namespace outboard::pipeline {
namespace {

/// Below this a part costs more to hand out than to run.
constexpr std::uint64_t kMinPartElems = 16384;
/// Parts start on a line of the 16-bit slot, so that no two threads write one.
constexpr std::uint64_t kPartAlignElems = 64;

enum StateIndex : std::size_t { kParam, kExpAvg, kExpAvgSq };

}  // namespace

Update::Update(Flow& flow, UpdateListener& listener)
    : flow_(flow), listener_(listener), running_(flow.layout.buckets.size()) {}

void Update::open(std::uint32_t bucket) {
  BucketRun& run = flow_.buckets[bucket];
  const plan::Bucket& shape = flow_.layout.buckets[bucket];
  run.updating = true;
  run.missing = 0;
  for (std::uint32_t i = 0; i < shape.segments; ++i) {
    const std::uint32_t segment = shape.first_segment + i;
    if (!flow_.parameters[flow_.layout.segments[segment].parameter].in_update) continue;
    SegmentRun& arrival = flow_.segments[segment];
    arrival.needed_landings = arrival.copies_queued;
    if (arrival.copies_landed < arrival.needed_landings) run.missing += 1;
  }
  flow_.updates_running += 1;
  flow_.uploads_unqueued += 1;
  if (run.missing == 0) post(bucket);
}

void Update::segment_arrived(std::uint32_t index) noexcept {
  const plan::Segment& segment = flow_.layout.segments[index];
  BucketRun& run = flow_.buckets[segment.bucket];
  // A gradient that was dropped can be the last that an earlier update's number counted.
  if (run.missing == 0 || !flow_.parameters[segment.parameter].in_update) return;
  if (--run.missing == 0) post(segment.bucket);
}

void Update::post(std::uint32_t bucket) noexcept {
  const plan::Bucket& shape = flow_.layout.buckets[bucket];
  const std::uint64_t threads = flow_.executor.threads(shape.node);
  const std::uint64_t useful = (shape.padded_elems + kMinPartElems - 1) / kMinPartElems;
  const std::uint64_t parts = std::clamp<std::uint64_t>(useful, 1, threads);
  const std::uint64_t even = (shape.padded_elems + parts - 1) / parts;
  Running& running = running_[bucket];
  running.ticket = Ticket{bucket, flow_.lease(bucket), flow_.buckets[bucket].slot};
  running.part_elems = (even + kPartAlignElems - 1) / kPartAlignElems * kPartAlignElems;
  exec::Task task;
  task.node = shape.node;
  task.priority = bucket;
  task.parts = static_cast<std::uint32_t>(parts);
  task.cost_elems = shape.elems;
  task.body = &Update::body;
  task.done = &Update::done;
  task.context = this;
  task.argument = bucket;
  flow_.post(task);
}

void Update::body(void* self, std::uint64_t bucket, std::uint32_t part) noexcept {
  static_cast<Update*>(self)->update_part(static_cast<std::uint32_t>(bucket), part);
}

void Update::update_part(std::uint32_t bucket, std::uint32_t part) noexcept {
  const Running& running = running_[bucket];
  const plan::Bucket& shape = flow_.layout.buckets[bucket];
  const std::uint64_t begin = running.part_elems * part;
  const std::uint64_t end = begin + running.part_elems;
  auto* slot = reinterpret_cast<std::uint16_t*>(running.ticket.slot.bytes.data());
  for (std::uint32_t i = 0; i < shape.segments; ++i) {
    const plan::Segment& segment = flow_.layout.segments[shape.first_segment + i];
    const Parameter& parameter = flow_.parameters[segment.parameter];
    const std::uint64_t from = std::max(begin, segment.offset);
    const std::uint64_t to = std::min(end, segment.offset + segment.elems);
    if (!parameter.in_update || from >= to) continue;
    const auto cut = [&](std::size_t stream) {
      return running.ticket.state.stream<float>(stream).subspan(from, to - from);
    };
    const std::span<std::uint16_t> half(slot + from, to - from);
    simd::AdamWShard shard{half, cut(kParam), cut(kExpAvg), cut(kExpAvgSq), half};
    if (flow_.sums != nullptr) {
      shard.grad_fp16 = {};
      shard.grad_fp32 = flow_.sums->bucket(bucket).subspan(from, to - from);
    }
    const std::uint64_t overflows = simd::adamw_step(shard, parameter.scalars);
    if (overflows != 0) flow_.weight_overflows[segment.parameter].fetch_add(overflows);
  }
}

void Update::done(void* self, std::uint64_t bucket) noexcept {
  auto& stage = *static_cast<Update*>(self);
  const std::lock_guard lock(stage.flow_.mutex);
  stage.flow_.updates_running -= 1;
  stage.listener_.bucket_updated(std::move(stage.running_[bucket].ticket));
  stage.flow_.finish_task();
}

}  // namespace outboard::pipeline
