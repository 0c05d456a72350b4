// SPDX-License-Identifier: Apache-2.0
#include "pipeline/update.hpp"

#include <algorithm>

#include "core/round_up.hpp"
#include "optim/rule_scalars.hpp"
#include "pipeline/host_sums.hpp"
#include "simd/reduce.hpp"
#include "simd/update.hpp"

namespace outboard::pipeline {
namespace {

/// Below this a part costs more to hand out than to run.
constexpr std::uint64_t kMinPartElems = 16384;

/// Where a part's cut of a segment starts when it takes whole blocks of the norm's tree.
std::uint64_t block_border(const plan::Segment& segment, std::uint64_t at) {
  if (at <= segment.offset) return segment.offset;
  const std::uint64_t inside = core::round_up(at - segment.offset, simd::kReduceBlockElems);
  return segment.offset + std::min(inside, segment.elems);
}

}  // namespace

void take_settings(Parameter& parameter, std::uint32_t index, const optim::Group& group,
                   double coeff) {
  const std::uint64_t step = parameter.step_count + 1;
  parameter.scalars = optim::scalars(group.rule, step, coeff);
  parameter.update_options = optim::update_options(group.options, index, step);
  if (const auto* lamb = std::get_if<Lamb>(&group.rule)) parameter.lr = lamb->lr;
}

void join_update(Parameter& parameter) {
  parameter.step_count += 1;
  parameter.buckets_unmeasured = parameter.segments.count;
  parameter.refresh_unwaited = true;
  parameter.ever_refreshed = true;
}

Update::Update(Flow& flow, UpdateListener& listener)
    : flow_(flow), listener_(listener), norms_(flow) {
  fit();
}

void Update::fit() {
  norms_.fit();
  running_.resize(flow_.layout.buckets.size());
}

void Update::open(std::uint32_t bucket) {
  BucketRun& run = flow_.buckets[bucket];
  const plan::Bucket& shape = flow_.layout.buckets[bucket];
  run.updating = true;
  run.missing = 0;
  running_[bucket].unmeasured = 0;
  running_[bucket].open = true;
  for (std::uint32_t i = 0; i < shape.segments; ++i) {
    const std::uint32_t segment = shape.first_segment + i;
    const Parameter& parameter = flow_.parameters[flow_.layout.segments[segment].parameter];
    SegmentRun& arrival = flow_.segments[segment];
    if (!arrival.in_update) continue;
    if (parameter.two_phase) running_[bucket].unmeasured += 1;
    arrival.needed_landings = arrival.copies_queued;
    if (arrival.copies_landed < arrival.needed_landings) run.missing += 1;
  }
  flow_.updates_running += 1;
  flow_.uploads_unqueued += 1;
  if (run.missing == 0) arrived(bucket);
}

void Update::segment_arrived(std::uint32_t index) noexcept {
  const plan::Segment& segment = flow_.layout.segments[index];
  BucketRun& run = flow_.buckets[segment.bucket];
  // A gradient that was dropped can be the last that an earlier update's number counted.
  if (run.missing == 0 || !flow_.segments[index].in_update) return;
  if (--run.missing == 0) arrived(segment.bucket);
}

void Update::arrived(std::uint32_t bucket) noexcept {
  running_[bucket].ticket = Ticket{bucket, flow_.lease(bucket), flow_.buckets[bucket].slot};
  if (snapshot_ == nullptr || snapshot_->secure(bucket)) begin(bucket);
}

void Update::begin(std::uint32_t bucket) noexcept {
  post(bucket, running_[bucket].unmeasured > 0 ? Phase::measure : Phase::apply);
}

void Update::post(std::uint32_t bucket, Phase phase) noexcept {
  const plan::Bucket& shape = flow_.layout.buckets[bucket];
  const std::uint64_t threads = flow_.executor.threads(shape.node);
  const std::uint64_t useful = (shape.padded_elems + kMinPartElems - 1) / kMinPartElems;
  const std::uint64_t parts = std::clamp<std::uint64_t>(useful, 1, threads);
  const std::uint64_t even = (shape.padded_elems + parts - 1) / parts;
  running_[bucket].part_elems = core::round_up(even, kPartAlignElems);
  exec::Task task;
  task.node = shape.node;
  task.priority = bucket;
  task.parts = static_cast<std::uint32_t>(parts);
  task.cost_elems = cost_elems(bucket, phase);
  task.body = phase == Phase::measure ? &Update::measure_body : &Update::apply_body;
  task.done = phase == Phase::measure ? &Update::measure_done : &Update::apply_done;
  task.rest_permille = flow_.options.rest_permille;
  task.context = this;
  task.argument = bucket;
  task.kind = SpanKind::update;
  flow_.post(task);
}

std::uint64_t Update::cost_elems(std::uint32_t bucket, Phase phase) const noexcept {
  const plan::Bucket& shape = flow_.layout.buckets[bucket];
  std::uint64_t bytes = 0;
  for (std::uint32_t i = 0; i < shape.segments; ++i) {
    const plan::Segment& segment = flow_.layout.segments[shape.first_segment + i];
    const Parameter& parameter = flow_.parameters[segment.parameter];
    const UpdateBytes& cost = parameter.update_bytes;
    bytes += segment.elems * (phase == Phase::measure ? cost.measure : cost.apply);
  }
  return bytes / exec::kBytesPerCostElem;
}

simd::UpdateShard Update::shard(std::uint32_t bucket, const Cut& cut) const noexcept {
  const Running& running = running_[bucket];
  const Parameter& parameter = flow_.parameters[cut.segment.parameter];
  const simd::Format format = optim::format_of(parameter.dtype);
  const std::uint64_t elems = cut.to - cut.from;
  const auto stream = [&](std::size_t index) {
    return running.ticket.state.stream<float>(index).subspan(cut.from, elems);
  };
  std::byte* slot = running.ticket.slot.bytes.data() + cut.from * dtype_bytes(parameter.dtype);
  simd::UpdateShard out;
  out.grad = {slot, format};
  if (flow_.sums != nullptr) {
    out.grad = {flow_.sums->bucket(bucket).data() + cut.from, simd::Format::f32};
  }
  out.weight = {slot, format};
  out.param = stream(0);
  for (std::size_t i = 0; i < parameter.rule_streams; ++i) out.state[i] = stream(1 + i);
  if (parameter.has_ema) out.ema = stream(parameter.ema_stream);
  out.first_element = cut.segment.first_element + (cut.from - cut.segment.offset);
  return out;
}

void Update::measure_part(std::uint32_t bucket, std::uint32_t part) noexcept {
  const plan::Bucket& shape = flow_.layout.buckets[bucket];
  const std::uint64_t begin = running_[bucket].part_elems * part;
  const std::uint64_t end = begin + running_[bucket].part_elems;
  for (std::uint32_t i = 0; i < shape.segments; ++i) {
    const plan::Segment& segment = flow_.layout.segments[shape.first_segment + i];
    const Parameter& parameter = flow_.parameters[segment.parameter];
    if (!flow_.segments[shape.first_segment + i].in_update || !parameter.two_phase) continue;
    const Cut cut{segment, block_border(segment, begin), block_border(segment, end)};
    if (cut.from >= cut.to) continue;
    const std::uint64_t first = (cut.from - segment.offset) / simd::kReduceBlockElems;
    const std::uint64_t blocks = simd::reduce_block_count(cut.to - cut.from);
    simd::lamb_moments(shard(bucket, cut), std::get<simd::LambScalars>(parameter.scalars),
                       norms_.segment(segment).subspan(first, blocks));
  }
}

void Update::apply_part(std::uint32_t bucket, std::uint32_t part) noexcept {
  const plan::Bucket& shape = flow_.layout.buckets[bucket];
  const std::uint64_t begin = running_[bucket].part_elems * part;
  const std::uint64_t end = begin + running_[bucket].part_elems;
  for (std::uint32_t i = 0; i < shape.segments; ++i) {
    const plan::Segment& segment = flow_.layout.segments[shape.first_segment + i];
    const Parameter& parameter = flow_.parameters[segment.parameter];
    const Cut cut{segment, std::max(begin, segment.offset),
                  std::min(end, segment.offset + segment.elems)};
    if (!flow_.segments[shape.first_segment + i].in_update || cut.from >= cut.to) continue;
    const std::uint64_t overflows =
        simd::update(shard(bucket, cut), parameter.scalars, parameter.update_options);
    if (overflows != 0) flow_.weight_overflows[segment.parameter].fetch_add(overflows);
  }
}

/// A bucket's first phase has ended.
void Update::measured(std::uint32_t bucket) noexcept {
  const plan::Bucket& shape = flow_.layout.buckets[bucket];
  for (std::uint32_t i = 0; i < shape.segments; ++i) {
    const std::uint32_t index = flow_.layout.segments[shape.first_segment + i].parameter;
    Parameter& parameter = flow_.parameters[index];
    if (!flow_.segments[shape.first_segment + i].in_update || !parameter.two_phase) continue;
    if (--parameter.buckets_unmeasured == 0) finish_norm(index);
  }
}

/// Its other buckets may wait for this norm alone. A bucket that lacks none has ended its own first
/// phase: each of its norms needed that.
void Update::finish_norm(std::uint32_t index) noexcept {
  Parameter& parameter = flow_.parameters[index];
  std::get<simd::LambScalars>(parameter.scalars).lr_trust = norms_.lr_trust(index);
  for (std::uint32_t i = 0; i < parameter.segments.count; ++i) {
    const std::uint32_t bucket = flow_.layout.segments[parameter.segments.first + i].bucket;
    if (--running_[bucket].unmeasured == 0) post(bucket, Phase::apply);
  }
}

void Update::measure_body(void* self, std::uint64_t bucket, std::uint32_t part) noexcept {
  static_cast<Update*>(self)->measure_part(static_cast<std::uint32_t>(bucket), part);
}

void Update::measure_done(void* self, std::uint64_t bucket) noexcept {
  auto& stage = *static_cast<Update*>(self);
  const std::lock_guard lock(stage.flow_.mutex);
  stage.flow_.count_sums(stage.flow_.layout.buckets[bucket].node, 0);
  stage.measured(static_cast<std::uint32_t>(bucket));
  stage.flow_.finish_task();
}

void Update::apply_body(void* self, std::uint64_t bucket, std::uint32_t part) noexcept {
  static_cast<Update*>(self)->apply_part(static_cast<std::uint32_t>(bucket), part);
}

void Update::apply_done(void* self, std::uint64_t bucket) noexcept {
  auto& stage = *static_cast<Update*>(self);
  const std::lock_guard lock(stage.flow_.mutex);
  const auto index = static_cast<std::uint32_t>(bucket);
  stage.flow_.updates_running -= 1;
  stage.running_[index].open = false;
  if (stage.snapshot_ != nullptr) stage.snapshot_->bucket_updated(index);
  stage.flow_.count_sums(stage.flow_.layout.buckets[bucket].node, 0);
  stage.listener_.bucket_updated(std::move(stage.running_[bucket].ticket));
  stage.flow_.finish_task();
}

}  // namespace outboard::pipeline
