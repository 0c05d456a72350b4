// SPDX-License-Identifier: Apache-2.0
#include "pipeline/resident.hpp"

#include <algorithm>
#include <string>

#include "core/round_up.hpp"
#include "simd/reduce.hpp"
#include "simd/rules/lamb.hpp"

namespace outboard::pipeline {

Resident::Resident(Flow& flow) : flow_(flow), updated_(flow.backend.create_event()) {}

Resident::~Resident() {
  release();
  flow_.backend.destroy_event(updated_);
}

void Resident::allocate(const DeviceRoom& room) {
  parts_.clear();
  allocate_new(room);
}

void Resident::allocate_new(const DeviceRoom& room) {
  const std::size_t before = parts_.size();
  const std::size_t held = held_bytes(1);
  const std::vector<plan::Home> homes = flow_.homes();
  std::vector<Part> parts;
  for (std::size_t i = before; i < flow_.generations.size(); ++i) {
    parts.emplace_back().layout = lay_out(flow_.generations[i], homes);
  }
  require_room(parts, held, room);
  try {
    for (Part& part : parts) {
      parts_.push_back(std::move(part));
      allocate(parts_.back());
    }
  } catch (...) {
    release_from(before);
    throw;
  }
}

void Resident::allocate(Part& part) {
  const auto allocate = [&](std::size_t bytes) {
    return bytes == 0 ? nullptr : static_cast<std::byte*>(flow_.backend.allocate(bytes));
  };
  for (std::size_t i = 0; i < part.layout.streams; ++i) {
    part.streams[i] = allocate(part.layout.stream_bytes);
  }
  part.sums = allocate(part.layout.sum_bytes);
  part.norms = allocate(part.layout.norm_bytes);
}

/// What is held now is given back first.
void Resident::require_room_for(const std::vector<plan::Home>& homes,
                                const DeviceRoom& room) const {
  std::vector<Part> parts;
  for (const Generation& generation : flow_.generations) {
    parts.emplace_back().layout = lay_out(generation, homes);
  }
  require_room(parts, 0, room);
}

Resident::Layout Resident::lay_out(const Generation& generation,
                                   const std::vector<plan::Home>& homes) const {
  Layout layout;
  layout.streams = generation.streams.streams();
  for (std::uint32_t i = generation.first_bucket; i < generation.end_bucket; ++i) {
    layout.offset.push_back(layout.stream_bytes);
    if (homes[i] != plan::Home::device_resident) continue;
    layout.stream_bytes += flow_.layout.buckets[i].padded_elems * sizeof(float);
  }
  if (flow_.options.micro_batches > 0) lay_out_sums(generation, homes, layout);
  lay_out_norms(generation, homes, layout);
  return layout;
}

/// Of a parameter whose buckets have one home.
plan::Home Resident::home_of(const Parameter& parameter,
                             const std::vector<plan::Home>& homes) const {
  if (parameter.segments.count == 0) return plan::Home::host;
  return homes[flow_.layout.segments[parameter.segments.first].bucket];
}

void Resident::lay_out_sums(const Generation& generation, const std::vector<plan::Home>& homes,
                            Layout& layout) const {
  for (std::uint32_t i = generation.first_parameter; i < generation.end_parameter; ++i) {
    const Parameter& parameter = flow_.parameters[i];
    layout.sum_offset.push_back(layout.sum_bytes);
    if (home_of(parameter, homes) == plan::Home::host) continue;
    layout.sum_bytes += core::round_up(parameter.elems * sizeof(float), core::kDeviceAlign);
  }
}

/// One parameter after the other takes both phases, so all use one area for their blocks.
void Resident::lay_out_norms(const Generation& generation, const std::vector<plan::Home>& homes,
                             Layout& layout) const {
  const auto takes_part = [&](const Parameter& parameter) {
    return parameter.two_phase && home_of(parameter, homes) == plan::Home::device_resident;
  };
  std::uint64_t most = 0;
  for (std::uint32_t i = generation.first_parameter; i < generation.end_parameter; ++i) {
    const Parameter& parameter = flow_.parameters[i];
    if (takes_part(parameter)) most = std::max(most, simd::reduce_block_count(parameter.elems));
  }
  layout.norm_bytes = most * sizeof(simd::BlockNorms);
  for (std::uint32_t i = generation.first_parameter; i < generation.end_parameter; ++i) {
    layout.trust_offset.push_back(layout.norm_bytes);
    if (takes_part(flow_.parameters[i])) layout.norm_bytes += sizeof(float);
  }
}

/// Each allocation rounded up.
std::size_t Resident::Layout::bytes(std::size_t align) const {
  return streams * core::round_up(stream_bytes, align) + sum_bytes +
         core::round_up(norm_bytes, align);
}

std::size_t Resident::held_bytes(std::size_t align) const {
  std::size_t bytes = 0;
  for (const Part& part : parts_) bytes += part.layout.bytes(align);
  return bytes;
}

std::size_t Resident::most_overhead_bytes() const {
  const std::vector<plan::Home> all(flow_.buckets.size(), plan::Home::device_resident);
  std::size_t bytes =
      flow_.options.micro_batches > 0 ? flow_.parameters.size() * core::kDeviceAlign : 0;
  for (const Generation& generation : flow_.generations) {
    const Layout layout = lay_out(generation, all);
    bytes += layout.norm_bytes + (layout.streams + 1) * core::kDeviceAlign;
  }
  return bytes;
}

/// For `parts`, which come beside `held_bytes`; what else is held now is given back first.
void Resident::require_room(std::span<const Part> parts, std::size_t held_bytes,
                            const DeviceRoom& room) const {
  std::size_t resident = 0;
  std::size_t aligned = room.new_buffer_bytes;
  std::size_t needed = held_bytes + room.buffer_bytes;
  for (const Part& part : parts) {
    resident += part.layout.stream_bytes;
    aligned += part.layout.bytes(core::kDeviceAlign);
    needed += part.layout.bytes(1);
  }
  if (aligned == 0) return;
  const std::string what = resident > 0 ? "device-resident" : "streamed";
  const std::string smaller =
      resident > 0 ? "a smaller fraction" : "a smaller Config::bucket_bytes";
  const auto require = [&](std::size_t bytes, std::size_t there, const std::string& which,
                           const std::string& remedy) {
    if (bytes <= there) return;
    throw Error(ErrorCode::out_of_memory, what + " optimizer state needs " + std::to_string(bytes) +
                                              " bytes of device memory and " + which + ": " +
                                              std::to_string(bytes - there) + " bytes short; " +
                                              remedy);
  };
  const device::MemoryInfo memory = flow_.backend.memory();
  const std::size_t given_back =
      (held_bytes == 0 ? this->held_bytes() : 0) + room.freed_buffer_bytes;
  const std::size_t free_bytes = memory.limit_bytes - memory.used_bytes + given_back;
  require(aligned, free_bytes,
          std::to_string(free_bytes) + " of " + std::to_string(memory.limit_bytes) + " are free",
          "use Placement::host or " + smaller + ", or a larger device");
  require(needed, room.budget_bytes,
          "Config::device_budget_bytes is " + std::to_string(room.budget_bytes),
          "use " + smaller + " or raise the budget");
}

void Resident::release_from(std::size_t generation) noexcept {
  for (std::size_t i = generation; i < parts_.size(); ++i) release(parts_[i]);
  parts_.erase(parts_.begin() + static_cast<std::ptrdiff_t>(std::min(generation, parts_.size())),
               parts_.end());
}

void Resident::release(Part& part) noexcept {
  for (void*& stream : part.streams) {
    if (stream != nullptr) flow_.backend.release(stream);
    stream = nullptr;
  }
  for (std::byte** memory : {&part.sums, &part.norms}) {
    if (*memory != nullptr) flow_.backend.release(*memory);
    *memory = nullptr;
  }
}

Resident::Held Resident::held(std::size_t generation) const {
  if (generation >= parts_.size()) return {};
  const Part& part = parts_[generation];
  Held held;
  for (std::size_t i = 0; i < part.layout.streams; ++i) {
    held.streams[i] = {static_cast<std::byte*>(part.streams[i]), part.layout.stream_bytes};
  }
  held.sums = {part.sums, part.layout.sum_bytes};
  held.norms = {part.norms, part.layout.norm_bytes};
  return held;
}

std::byte* Resident::stream_address(const plan::Segment& segment, std::size_t index) const {
  return bucket_address(segment.bucket, index) + segment.offset * sizeof(float);
}

Resident::Address Resident::address(const plan::Segment& segment) const {
  BucketAddress bucket{};
  const std::size_t streams = flow_.generation(segment.bucket).streams.streams();
  for (std::size_t i = 0; i < streams; ++i) bucket[i] = bucket_address(segment.bucket, i);
  return address_in(bucket, segment);
}

Resident::Address Resident::address_in(const BucketAddress& bucket,
                                       const plan::Segment& segment) const {
  const Parameter& parameter = flow_.parameters[segment.parameter];
  const std::size_t offset = segment.offset * sizeof(float);
  Address out;
  out.param = bucket[0] + offset;
  for (std::size_t i = 0; i < parameter.rule_streams; ++i) out.state[i] = bucket[1 + i] + offset;
  if (parameter.has_ema) out.ema = bucket[parameter.ema_stream] + offset;
  return out;
}

simd::ConstElements Resident::gradient(const plan::Segment& segment) const {
  if (const std::byte* sum = sums(segment.parameter)) {
    return {sum + segment.first_element * sizeof(float), simd::Format::f32};
  }
  return {flow_.gradient_address(segment),
          optim::format_of(flow_.parameters[segment.parameter].dtype)};
}

std::byte* Resident::lr_trust(std::uint32_t parameter) const noexcept {
  const Part& part = parts_[flow_.parameters[parameter].generation];
  return part.norms + part.layout.trust_offset[in_part(parameter)];
}

void Resident::update(void* overflow_counts) {
  for (std::uint32_t i = 0; i < flow_.layout.buckets.size(); ++i) {
    if (!flow_.is_resident(i) || !flow_.takes_part(i)) continue;
    const plan::Bucket& bucket = flow_.layout.buckets[i];
    for (std::uint32_t k = bucket.first_segment; k < bucket.first_segment + bucket.segments; ++k) {
      const plan::Segment& segment = flow_.layout.segments[k];
      const bool begins = flow_.segments[k].in_update && segment.first_element == 0;
      if (begins && flow_.parameters[segment.parameter].two_phase) measure(segment.parameter);
    }
    update_bucket(i, static_cast<std::byte*>(overflow_counts));
  }
  flow_.backend.record(updated_, update_stream());
}

void Resident::order_behind_updates(NativeStream stream) {
  flow_.backend.wait_event(stream, updated_);
}

/// First phase of a whole parameter, and its trust ratio.
void Resident::measure(std::uint32_t index) {
  const Parameter& parameter = flow_.parameters[index];
  for (std::uint32_t i = 0; i < parameter.segments.count; ++i) {
    const plan::Segment& segment = flow_.layout.segments[parameter.segments.first + i];
    const std::uint64_t first = segment.first_element / simd::kReduceBlockElems;
    const Address state = address(segment);
    flow_.backend.lamb_moments(update_stream(),
                               {.grad = gradient(segment),
                                .param = state.param,
                                .state = state.state,
                                .elems = segment.elems,
                                .scalars = std::get<simd::LambScalars>(parameter.scalars),
                                .norms = norms(index) + first * sizeof(simd::BlockNorms)});
  }
  flow_.backend.lamb_trust(update_stream(), {.norms = norms(index),
                                             .blocks = simd::reduce_block_count(parameter.elems),
                                             .lr = parameter.lr,
                                             .lr_trust = lr_trust(index)});
}

void Resident::update_bucket(std::uint32_t index, std::byte* overflow_counts) {
  const plan::Bucket& bucket = flow_.layout.buckets[index];
  for (std::uint32_t i = 0; i < bucket.segments; ++i) {
    const plan::Segment& segment = flow_.layout.segments[bucket.first_segment + i];
    if (flow_.segments[bucket.first_segment + i].in_update) {
      update_segment(segment, address(segment), overflow_counts);
    }
  }
  flow_.backend.record(flow_.buckets[index].refreshed, update_stream());
  if (flow_.open_gate()) flow_.backend.record(updated_, update_stream());
}

void Resident::update_segment(const plan::Segment& segment, const Address& state,
                              std::byte* overflow_counts) {
  const Parameter& parameter = flow_.parameters[segment.parameter];
  device::DeviceUpdate arguments;
  arguments.grad = gradient(segment);
  arguments.weight = {flow_.weight_address(segment), optim::format_of(parameter.dtype)};
  arguments.param = state.param;
  arguments.state = state.state;
  arguments.ema = state.ema;
  arguments.elems = segment.elems;
  arguments.first_element = segment.first_element;
  arguments.scalars = parameter.scalars;
  arguments.options = parameter.update_options;
  arguments.overflow_count = overflow_counts + segment.parameter * sizeof(std::uint64_t);
  if (parameter.two_phase) arguments.lr_trust = lr_trust(segment.parameter);
  flow_.backend.update(update_stream(), arguments);
}

}  // namespace outboard::pipeline
