// SPDX-License-Identifier: Apache-2.0
#include "pipeline/bounce_ring.hpp"

#include <algorithm>
#include <cstring>

#include "pipeline/host_sums.hpp"

namespace outboard::pipeline {
namespace {

constexpr std::int64_t kBeforeUpdates = -1;
/// What `bytes` of gradients or weights cost to move, which reads and writes them, in elements of
/// 28 bytes.
std::uint64_t move_cost(std::uint64_t bytes) {
  return bytes * 2 / exec::kBytesPerCostElem;
}
/// An addition of a 16-bit gradient to a sum moves 10 bytes.
constexpr std::uint64_t kAddCost = 3;
/// Below this more threads cost more than they bring.
constexpr std::uint64_t kSmallElems = 32768;

}  // namespace

BounceRing::BounceRing(Flow& flow, std::span<const memory::SlotView> buffers,
                       BounceListener& listener)
    : flow_(flow), listener_(listener) {
  fit();
  try {
    for (const memory::SlotView& view : buffers) {
      buffers_.push_back(std::make_unique<Buffer>());
      buffers_.back()->bytes = view.bytes;
      buffers_.back()->passed = flow.backend.create_event();
    }
  } catch (...) {
    destroy();
    throw;
  }
}

void BounceRing::fit() {
  weights_.fit(flow_.layout.buckets.size());
  gradients_.reserve(flow_.layout.segments.size());
}

BounceRing::~BounceRing() {
  destroy();
}

void BounceRing::destroy() noexcept {
  for (const auto& buffer : buffers_) {
    if (buffer->passed.index == device::Event{}.index) continue;
    flow_.backend.destroy_event(buffer->passed);
  }
}

void BounceRing::request_gradient(const Gradient& gradient) {
  gradients_.push_back(gradient);
  flow_.gradients_landing += 1;
  pump();
}

void BounceRing::request_weight(std::uint32_t bucket) {
  weights_.push(bucket);
  pump();
}

void BounceRing::drop_gradients(std::optional<std::uint32_t> only) {
  const auto dropped = [&](std::uint32_t segment) {
    return !only || flow_.layout.segments[segment].parameter == *only;
  };
  std::erase_if(gradients_, [&](const Gradient& gradient) {
    if (!dropped(gradient.segment)) return false;
    Parameter& parameter = flow_.parameters[flow_.layout.segments[gradient.segment].parameter];
    flow_.segments[gradient.segment].copies_queued -= 1;
    parameter.unqueued_copies -= 1;
    parameter.unlanded_copies -= 1;
    flow_.gradients_landing -= 1;
    return true;
  });
  for (const auto& buffer : buffers_) {
    if (buffer->cargo == Cargo::gradient && dropped(buffer->index)) buffer->dropped.store(true);
  }
}

void BounceRing::pump() {
  for (std::uint32_t i = 0; i < buffers_.size(); ++i) {
    if (buffers_[i]->cargo != Cargo::none) continue;
    if (!weights_.empty()) {  // the next forward waits for these
      start_weight(i, weights_.pop());
      continue;
    }
    Gradient gradient;
    if (!take_eligible(gradient)) return;
    start_gradient(i, gradient);
  }
}

/// The oldest request whose segment is not in the ring: gradients of one segment are drained in the
/// order of their calls, which is the order in which they are added up.
bool BounceRing::take_eligible(Gradient& gradient) {
  const auto found = std::ranges::find_if(gradients_, [&](const Gradient& waiting) {
    return !flow_.segments[waiting.segment].in_ring;
  });
  if (found == gradients_.end()) return false;
  gradient = *found;
  gradients_.erase(found);
  return true;
}

void BounceRing::start_gradient(std::uint32_t buffer_index, const Gradient& gradient) {
  const std::uint32_t index = gradient.segment;
  Buffer& buffer = *buffers_[buffer_index];
  buffer.first = gradient.first;
  buffer.last = gradient.last;
  flow_.segments[index].in_ring = true;
  buffer.cargo = Cargo::gradient;
  buffer.index = index;
  buffer.dropped.store(false);
  const plan::Segment& segment = flow_.layout.segments[index];
  Parameter& parameter = flow_.parameters[segment.parameter];
  const auto target = buffer.bytes.first(segment.elems * flow_.elem_bytes(segment));
  flow_.backend.wait_event(flow_.down, parameter.ready);
  // Behind the upload of the step before: what follows the landing may write the slot again.
  flow_.backend.wait_event(flow_.down, flow_.buckets[segment.bucket].refreshed);
  flow_.backend.copy_to_host(target, flow_.gradient_address(segment), flow_.down);
  flow_.backend.record(flow_.segments[index].arrived, flow_.down);
  flow_.notify(flow_.segments[index].arrived, {&BounceRing::gradient_landed, this, buffer_index});
  flow_.stats.gradient_bytes_down += target.size();
  flow_.stats.copies_down += 1;
  parameter.unqueued_copies -= 1;
  flow_.backend.waiter().wake();
}

void BounceRing::post(std::uint32_t buffer, std::uint64_t elems,
                      void (*body)(void*, std::uint64_t, std::uint32_t) noexcept,
                      void (*done)(void*, std::uint64_t) noexcept) {
  const Buffer& cargo = *buffers_[buffer];
  const std::uint32_t bucket =
      cargo.cargo == Cargo::gradient ? flow_.layout.segments[cargo.index].bucket : cargo.index;
  exec::Task task;
  task.node = flow_.layout.buckets[bucket].node;
  task.priority = kBeforeUpdates;
  task.parts = buffers_[buffer]->parts;
  task.cost_elems = elems;
  task.body = body;
  task.done = done;
  task.context = this;
  task.argument = buffer;
  if (cargo.cargo == Cargo::gradient && flow_.sums != nullptr) task.kind = SpanKind::sum;
  flow_.post(task);
}

void BounceRing::gradient_landed(void* self, std::uint64_t buffer) noexcept {
  auto& ring = *static_cast<BounceRing*>(self);
  const std::lock_guard lock(ring.flow_.mutex);
  const plan::Segment& segment = ring.flow_.layout.segments[ring.buffers_[buffer]->index];
  const std::uint32_t node = ring.flow_.layout.buckets[segment.bucket].node;
  ring.buffers_[buffer]->parts =
      segment.elems < kSmallElems ? 1 : ring.flow_.executor.threads(node);
  const std::uint64_t cost = ring.flow_.sums != nullptr
                                 ? segment.elems / kAddCost
                                 : move_cost(segment.elems * ring.flow_.elem_bytes(segment));
  ring.post(static_cast<std::uint32_t>(buffer), cost, &BounceRing::drain, &BounceRing::drained);
  ring.flow_.finish_callback();
}

void BounceRing::drain(void* self, std::uint64_t buffer, std::uint32_t part) noexcept {
  auto& ring = *static_cast<BounceRing*>(self);
  const Buffer& cargo = *ring.buffers_[buffer];
  if (cargo.dropped.load()) return;
  const plan::Segment& segment = ring.flow_.layout.segments[cargo.index];
  if (ring.flow_.sums != nullptr) {
    ring.flow_.sums->add({cargo.index, cargo.bytes.data(), cargo.first, cargo.last}, part,
                         cargo.parts);
    return;
  }
  const auto slot = ring.flow_.slot_bytes(segment);
  const std::size_t each = (slot.size() + cargo.parts - 1) / cargo.parts;
  const std::size_t from = std::min(slot.size(), each * part);
  const std::size_t size = std::min(slot.size() - from, each);
  std::memcpy(slot.data() + from, cargo.bytes.data() + from, size);
}

void BounceRing::drained(void* self, std::uint64_t buffer) noexcept {
  auto& ring = *static_cast<BounceRing*>(self);
  const std::lock_guard lock(ring.flow_.mutex);
  const std::uint32_t segment = ring.buffers_[buffer]->index;
  const plan::Segment& shape = ring.flow_.layout.segments[segment];
  const bool moved = ring.flow_.sums == nullptr && !ring.buffers_[buffer]->dropped.load();
  if (moved) ring.flow_.stats.bounce_bytes += shape.elems * ring.flow_.elem_bytes(shape);
  const bool added = ring.flow_.sums != nullptr && !ring.buffers_[buffer]->dropped.load();
  ring.flow_.count_sums(ring.flow_.layout.buckets[shape.bucket].node, added ? shape.elems : 0);
  ring.flow_.segments[segment].in_ring = false;
  ring.flow_.gradients_landing -= 1;
  ring.release(static_cast<std::uint32_t>(buffer));
  ring.listener_.gradient_drained(segment);
  ring.flow_.finish_task();
}

void BounceRing::start_weight(std::uint32_t buffer, std::uint32_t bucket) {
  buffers_[buffer]->cargo = Cargo::weight;
  buffers_[buffer]->index = bucket;
  buffers_[buffer]->parts = 1;
  const plan::Bucket& shape = flow_.layout.buckets[bucket];
  post(buffer, move_cost(shape.elems * dtype_bytes(shape.dtype)), &BounceRing::fill,
       &BounceRing::filled);
}

void BounceRing::fill(void* self, std::uint64_t buffer, std::uint32_t /*part*/) noexcept {
  auto& ring = *static_cast<BounceRing*>(self);
  ring.copy_weights(*ring.buffers_[buffer]);
}

void BounceRing::copy_weights(Buffer& buffer) noexcept {
  const plan::Bucket& bucket = flow_.layout.buckets[buffer.index];
  for (std::uint32_t i = 0; i < bucket.segments; ++i) {
    const plan::Segment& segment = flow_.layout.segments[bucket.first_segment + i];
    if (!flow_.segments[bucket.first_segment + i].in_update) continue;
    const auto slot = flow_.slot_bytes(segment);
    std::memcpy(buffer.bytes.data() + segment.offset * flow_.elem_bytes(segment), slot.data(),
                slot.size());
  }
}

void BounceRing::filled(void* self, std::uint64_t buffer) noexcept {
  auto& ring = *static_cast<BounceRing*>(self);
  const std::lock_guard lock(ring.flow_.mutex);
  ring.flow_.capture_failure(
      [&] { ring.queue_upload(*ring.buffers_[buffer], static_cast<std::uint32_t>(buffer)); });
  const std::uint32_t bucket = ring.buffers_[buffer]->index;
  ring.flow_.count_sums(ring.flow_.layout.buckets[bucket].node, 0);
  ring.listener_.weight_queued(bucket);
  ring.flow_.finish_task();
}

void BounceRing::queue_upload(Buffer& buffer, std::uint32_t index) {
  const plan::Bucket& bucket = flow_.layout.buckets[buffer.index];
  flow_.order_behind_readers(buffer.index, flow_.up);
  for (std::uint32_t i = 0; i < bucket.segments; ++i) {
    const plan::Segment& segment = flow_.layout.segments[bucket.first_segment + i];
    if (!flow_.segments[bucket.first_segment + i].in_update) continue;
    const std::size_t size = flow_.elem_bytes(segment);
    const auto bytes = buffer.bytes.subspan(segment.offset * size, segment.elems * size);
    flow_.backend.copy_to_device(flow_.weight_address(segment), bytes, flow_.up);
    flow_.stats.weight_bytes_up += bytes.size();
    flow_.stats.bounce_bytes += bytes.size();
    flow_.stats.copies_up += 1;
  }
  flow_.backend.record(flow_.buckets[buffer.index].refreshed, flow_.up);
  flow_.backend.record(buffer.passed, flow_.up);
  flow_.notify(buffer.passed, {&BounceRing::weight_passed, this, index});
}

void BounceRing::weight_passed(void* self, std::uint64_t buffer) noexcept {
  auto& ring = *static_cast<BounceRing*>(self);
  const std::lock_guard lock(ring.flow_.mutex);
  // A device callback may not call the device, and handing the buffer on does.
  ring.buffers_[buffer]->parts = 1;
  ring.post(static_cast<std::uint32_t>(buffer), 0, &BounceRing::nothing, &BounceRing::freed);
  ring.flow_.finish_callback();
}

void BounceRing::nothing(void* /*self*/, std::uint64_t /*buffer*/,
                         std::uint32_t /*part*/) noexcept {}

void BounceRing::freed(void* self, std::uint64_t buffer) noexcept {
  auto& ring = *static_cast<BounceRing*>(self);
  const std::lock_guard lock(ring.flow_.mutex);
  ring.release(static_cast<std::uint32_t>(buffer));
  ring.flow_.finish_task();
}

void BounceRing::release(std::uint32_t buffer) {
  buffers_[buffer]->cargo = Cargo::none;
  flow_.capture_failure([&] { pump(); });
}

}  // namespace outboard::pipeline
