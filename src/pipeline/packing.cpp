// SPDX-License-Identifier: Apache-2.0
#include "pipeline/packing.hpp"

#include <algorithm>

namespace outboard::pipeline {

static_assert(sizeof(device::PackedWeight) == core::kUnpackEntryBytes);

// --- memory -------------------------------------------------------------------------------------

Packing::Packing(Flow& flow, std::uint32_t first_bucket, std::uint32_t end_bucket)
    : flow_(flow), first_bucket_(first_bucket) {
  for (std::uint32_t i = first_bucket; i < end_bucket; ++i) {
    const plan::Bucket& bucket = flow.layout.buckets[i];
    Group& group = groups_.emplace_back();
    group.first_entry = need_.parameters;
    need_.add(bucket.packed_segments, bucket.packed_bytes());
  }
  gradients_.resize(need_.pack_buffers());
  weights_.resize(need_.unpack_buffers());
}

void Packing::allocate() {
  buffers_ = static_cast<std::byte*>(flow_.backend.allocate(need_.bytes()));
  tables_ = static_cast<std::byte*>(flow_.backend.allocate(need_.table_bytes()));
  loaded_ = flow_.backend.create_event();
  cut_buffers(0, gradients_);
  cut_buffers(gradients_.size(), weights_);
}

void Packing::cut_buffers(std::size_t from, std::vector<Buffer>& out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i].memory = buffers_ + (from + i) * need_.buffer_bytes();
    out[i].filled = flow_.backend.create_event();
    out[i].emptied = flow_.backend.create_event();
  }
}

Packing::~Packing() {
  const auto destroy = [&](device::Event event) {
    if (event.index != device::Event{}.index) flow_.backend.destroy_event(event);
  };
  for (const std::vector<Buffer>* buffers : {&gradients_, &weights_}) {
    for (const Buffer& buffer : *buffers) {
      destroy(buffer.filled);
      destroy(buffer.emptied);
    }
  }
  destroy(loaded_);
  if (tables_ != nullptr) flow_.backend.release(tables_);
  if (buffers_ != nullptr) flow_.backend.release(buffers_);
}

void Packing::load_tables(std::unique_lock<std::mutex>& lock) {
  for (const plan::Bucket& bucket :
       std::span(flow_.layout.buckets).subspan(first_bucket_, groups_.size())) {
    for (std::uint32_t i = 0; i < bucket.segments; ++i) {
      const plan::Segment& segment = flow_.layout.segments[bucket.first_segment + i];
      if (!bucket.packs(segment)) continue;
      table_.push_back({flow_.weight_address(segment), segment.offset, segment.elems});
    }
  }
  flow_.backend.copy_to_device(tables_, std::as_bytes(std::span(table_)), flow_.up);
  flow_.backend.record(loaded_, flow_.up);
  flow_.synchronize(lock, loaded_, "tables of the weights that are packed");
  table_ = {};
}

// --- gradients ----------------------------------------------------------------------------------

bool Packing::pack(std::uint32_t index, void* scalars) {
  Parameter& parameter = flow_.parameters[index];
  const plan::Segment& segment = flow_.layout.segments[parameter.segments.first];
  const plan::Bucket& bucket = flow_.layout.buckets[segment.bucket];
  if (!bucket.packs(segment) || flow_.updated_on_device(segment.bucket)) return false;
  Group& group = this->group(segment.bucket);
  if (group.packed == 0 && !take_buffer(group)) return false;
  group.from = group.packed == 0 ? segment.offset : std::min(group.from, segment.offset);
  group.to = std::max(group.packed == 0 ? 0 : group.to, segment.offset + segment.elems);
  group.packed += 1;
  group.last = index;
  flow_.backend.wait_event(flow_.norm, parameter.ready);
  flow_.backend.pack_gradient(
      flow_.norm, {parameter.gradient, optim::format_of(parameter.dtype)}, parameter.elems,
      gradients_[group.buffer].memory + segment.offset * flow_.elem_bytes(segment), scalars);
  flow_.backend.record(parameter.reduced, flow_.norm);
  return true;
}

/// The one that was handed on first is the first to be empty.
bool Packing::take_buffer(Group& group) {
  if (group.alone) return false;
  for (std::size_t i = 0; i < gradients_.size(); ++i) {
    const std::size_t index = (next_gradients_ + i) % gradients_.size();
    Buffer& buffer = gradients_[index];
    if (buffer.held) continue;
    buffer.held = true;
    group.buffer = index;
    next_gradients_ = (index + 1) % gradients_.size();
    flow_.backend.wait_event(flow_.norm, buffer.emptied);
    return true;
  }
  group.alone = true;
  return false;
}

device::Event Packing::queue_copy(std::uint32_t index) {
  Group& group = this->group(index);
  Buffer& buffer = gradients_[group.buffer];
  const std::size_t size = dtype_bytes(flow_.layout.buckets[index].dtype);
  const auto target =
      flow_.packed_bytes(index).subspan(group.from * size, (group.to - group.from) * size);
  flow_.backend.wait_event(flow_.down, flow_.parameters[group.last].reduced);
  // The slot still holds the weights of the step before until their upload has passed.
  flow_.backend.wait_event(flow_.down, flow_.buckets[index].refreshed);
  flow_.backend.copy_to_host(target, buffer.memory + group.from * size, flow_.down);
  flow_.backend.record(buffer.emptied, flow_.down);
  flow_.stats.gradient_bytes_down += target.size();
  flow_.stats.copies_down += 1;
  buffer.held = false;
  group.packed = 0;
  return buffer.emptied;
}

void Packing::end_step() noexcept {
  for (Group& group : groups_) {
    if (group.packed > 0) gradients_[group.buffer].held = false;
    group.packed = 0;
    group.alone = false;
  }
}

// --- weights ------------------------------------------------------------------------------------

bool Packing::takes_all(std::uint32_t index) const {
  const plan::Bucket& bucket = flow_.layout.buckets[index];
  std::uint32_t taking = 0;
  for (std::uint32_t i = 0; i < bucket.segments; ++i) {
    const std::uint32_t segment = bucket.first_segment + i;
    if (!bucket.packs(flow_.layout.segments[segment])) continue;
    taking += flow_.segments[segment].in_update ? 1 : 0;
  }
  return taking > 0 && taking == bucket.packed_segments;
}

void Packing::queue_weights(std::uint32_t index) {
  const plan::Bucket& bucket = flow_.layout.buckets[index];
  Buffer& buffer = weights_[next_weights_];
  next_weights_ = (next_weights_ + 1) % weights_.size();
  const auto source = flow_.packed_bytes(index);
  flow_.backend.wait_event(flow_.up, buffer.emptied);
  flow_.backend.copy_to_device(buffer.memory, source, flow_.up);
  flow_.backend.record(buffer.filled, flow_.up);
  flow_.backend.wait_event(flow_.unpack, buffer.filled);
  flow_.backend.unpack(flow_.unpack,
                       {.packed = {buffer.memory, optim::format_of(bucket.dtype)},
                        .elems = bucket.packed_elems,
                        .weights = tables_ + group(index).first_entry * core::kUnpackEntryBytes,
                        .count = bucket.packed_segments});
  flow_.backend.record(buffer.emptied, flow_.unpack);
  flow_.backend.record(flow_.buckets[index].refreshed, flow_.unpack);
  flow_.stats.weight_bytes_up += source.size();
  flow_.stats.copies_up += 1;
}

void Packing::order_behind_unpacking(NativeStream stream) {
  for (const Buffer& buffer : weights_) flow_.backend.wait_event(stream, buffer.emptied);
}

}  // namespace outboard::pipeline
