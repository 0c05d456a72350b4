// SPDX-License-Identifier: Apache-2.0
#include "pipeline/resident.hpp"

#include <algorithm>

namespace outboard::pipeline {

Resident::Resident(Flow& flow) : flow_(flow) {
  std::uint64_t elems = 0;
  for (const std::uint64_t node : flow.layout.node_elems) elems += node;
  stream_bytes_ = elems * sizeof(float);
  if (stream_bytes_ == 0) return;
  if (flow.options.micro_batches > 0) lay_out_sums();
  require_room();
  try {
    for (void*& stream : streams_) stream = flow.backend.allocate(stream_bytes_);
    if (sum_bytes_ > 0) sums_ = static_cast<std::byte*>(flow.backend.allocate(sum_bytes_));
  } catch (...) {
    release();
    throw;
  }
}

void Resident::lay_out_sums() {
  constexpr std::size_t kAlign = 256;  // as device memory is handed out
  for (const Parameter& parameter : flow_.parameters) {
    sum_offset_.push_back(sum_bytes_);
    const std::size_t bytes = parameter.elems * sizeof(float);
    sum_bytes_ += (bytes + kAlign - 1) / kAlign * kAlign;
  }
}

void Resident::require_room() const {
  const device::MemoryInfo memory = flow_.backend.memory();
  const std::size_t free_bytes = memory.limit_bytes - memory.used_bytes;
  const std::size_t needed = 3 * stream_bytes_ + sum_bytes_;
  if (needed <= free_bytes) return;
  throw Error(ErrorCode::out_of_memory,
              "device-resident optimizer state needs " + std::to_string(needed) +
                  " bytes of device memory and " + std::to_string(free_bytes) + " of " +
                  std::to_string(memory.limit_bytes) +
                  " are free: " + std::to_string(needed - free_bytes) +
                  " bytes short; use Placement::host, or a larger device");
}

Resident::~Resident() {
  release();
}

void Resident::release() noexcept {
  for (void*& stream : streams_) {
    if (stream != nullptr) flow_.backend.release(stream);
    stream = nullptr;
  }
  if (sums_ != nullptr) flow_.backend.release(sums_);
  sums_ = nullptr;
}

Resident::Address Resident::address(const plan::Segment& segment) const {
  // Bucket offsets count per node; resident state is one run over all nodes.
  const plan::Bucket& bucket = flow_.layout.buckets[segment.bucket];
  std::uint64_t elems = bucket.node_offset + segment.offset;
  for (std::uint32_t node = 0; node < bucket.node; ++node) elems += flow_.layout.node_elems[node];
  const std::size_t bytes = elems * sizeof(float);
  const auto at = [&](std::size_t i) { return static_cast<std::byte*>(streams_[i]) + bytes; };
  return {at(0), at(1), at(2)};
}

void Resident::update(void* overflow_counts) {
  for (std::uint32_t i = 0; i < flow_.layout.buckets.size(); ++i) {
    const plan::Bucket& bucket = flow_.layout.buckets[i];
    const auto takes_part = [&](const plan::Segment& segment) {
      return flow_.parameters[segment.parameter].in_update;
    };
    const auto first = flow_.layout.segments.begin() + bucket.first_segment;
    if (std::any_of(first, first + bucket.segments, takes_part)) {
      update_bucket(i, static_cast<std::byte*>(overflow_counts));
    }
  }
}

void Resident::update_bucket(std::uint32_t index, std::byte* overflow_counts) {
  const plan::Bucket& bucket = flow_.layout.buckets[index];
  for (std::uint32_t i = 0; i < bucket.segments; ++i) {
    const plan::Segment& segment = flow_.layout.segments[bucket.first_segment + i];
    const Parameter& parameter = flow_.parameters[segment.parameter];
    if (!parameter.in_update) continue;
    const Address state = address(segment);
    device::DeviceAdamW arguments;
    if (const std::byte* sum = sums(segment.parameter)) {
      arguments.grad_fp32 = sum + segment.first_element * sizeof(float);
    } else {
      arguments.grad_fp16 =
          static_cast<const std::byte*>(parameter.gradient) + segment.first_element * 2;
    }
    arguments.param = state.param;
    arguments.exp_avg = state.exp_avg;
    arguments.exp_avg_sq = state.exp_avg_sq;
    arguments.weight_fp16 = flow_.weight_address(segment);
    arguments.elems = segment.elems;
    arguments.scalars = parameter.scalars;
    arguments.overflow_count = overflow_counts + segment.parameter * sizeof(std::uint64_t);
    flow_.backend.adamw(flow_.up, arguments);
  }
  flow_.backend.record(flow_.buckets[index].refreshed, flow_.up);
}

}  // namespace outboard::pipeline
