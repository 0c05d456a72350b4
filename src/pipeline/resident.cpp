// SPDX-License-Identifier: Apache-2.0
#include "pipeline/resident.hpp"

#include <algorithm>
#include <string>

#include "core/round_up.hpp"
#include "simd/reduce.hpp"
#include "simd/rules/lamb.hpp"

namespace outboard::pipeline {
namespace {

constexpr std::size_t kDeviceAlign = 256;  // as device memory is handed out

}  // namespace

Resident::Resident(Flow& flow) : flow_(flow), updated_(flow.backend.create_event()) {}

Resident::~Resident() {
  release();
  flow_.backend.destroy_event(updated_);
}

void Resident::allocate(std::size_t budget_bytes) {
  layout_ = lay_out(flow_.homes());
  if (layout_.stream_bytes == 0) return;
  require_room(layout_, budget_bytes);
  const auto allocate = [&](std::size_t bytes) {
    return static_cast<std::byte*>(flow_.backend.allocate(bytes));
  };
  try {
    for (std::size_t i = 0; i < flow_.streams.streams(); ++i) {
      streams_[i] = allocate(layout_.stream_bytes);
    }
    if (layout_.sum_bytes > 0) sums_ = allocate(layout_.sum_bytes);
    if (layout_.norm_bytes > 0) norms_ = allocate(layout_.norm_bytes);
  } catch (...) {
    release();
    throw;
  }
}

void Resident::require_room_for(const std::vector<bool>& resident, std::size_t budget_bytes) const {
  require_room(lay_out(resident), budget_bytes);
}

Resident::Layout Resident::lay_out(const std::vector<bool>& resident) const {
  Layout layout;
  for (std::size_t i = 0; i < resident.size(); ++i) {
    layout.offset.push_back(layout.stream_bytes);
    if (resident[i]) layout.stream_bytes += flow_.layout.buckets[i].padded_elems * sizeof(float);
  }
  if (flow_.options.micro_batches > 0) lay_out_sums(resident, layout);
  lay_out_norms(resident, layout);
  return layout;
}

/// Of a parameter whose buckets have one home.
bool Resident::is_resident(const Parameter& parameter, const std::vector<bool>& resident) const {
  if (parameter.segments.count == 0) return false;
  return resident[flow_.layout.segments[parameter.segments.first].bucket];
}

void Resident::lay_out_sums(const std::vector<bool>& resident, Layout& layout) const {
  for (const Parameter& parameter : flow_.parameters) {
    layout.sum_offset.push_back(layout.sum_bytes);
    if (!is_resident(parameter, resident)) continue;
    layout.sum_bytes += core::round_up(parameter.elems * sizeof(float), kDeviceAlign);
  }
}

/// One parameter after the other takes both phases, so all use one area for their blocks.
void Resident::lay_out_norms(const std::vector<bool>& resident, Layout& layout) const {
  const auto takes_part = [&](const Parameter& parameter) {
    return parameter.two_phase && is_resident(parameter, resident);
  };
  std::uint64_t most = 0;
  for (const Parameter& parameter : flow_.parameters) {
    if (takes_part(parameter)) most = std::max(most, simd::reduce_block_count(parameter.elems));
  }
  layout.norm_bytes = most * sizeof(simd::BlockNorms);
  for (const Parameter& parameter : flow_.parameters) {
    layout.trust_offset.push_back(layout.norm_bytes);
    if (takes_part(parameter)) layout.norm_bytes += sizeof(float);
  }
}

/// Each allocation rounded up.
std::size_t Resident::needed_bytes(const Layout& layout, std::size_t align) const {
  return flow_.streams.streams() * core::round_up(layout.stream_bytes, align) + layout.sum_bytes +
         core::round_up(layout.norm_bytes, align);
}

std::size_t Resident::held_bytes() const {
  return streams_[0] == nullptr ? 0 : needed_bytes(layout_, kDeviceAlign);
}

std::size_t Resident::most_overhead_bytes() const {
  const Layout all = lay_out(std::vector<bool>(flow_.buckets.size(), true));
  return all.norm_bytes + (flow_.streams.streams() + 1) * kDeviceAlign;
}

/// What is held now is given back first.
void Resident::require_room(const Layout& layout, std::size_t budget_bytes) const {
  const auto require = [](std::size_t needed, std::size_t there, const std::string& which,
                          const char* remedy) {
    if (needed <= there) return;
    throw Error(ErrorCode::out_of_memory,
                "device-resident optimizer state needs " + std::to_string(needed) +
                    " bytes of device memory and " + which + ": " + std::to_string(needed - there) +
                    " bytes short; " + remedy);
  };
  const device::MemoryInfo memory = flow_.backend.memory();
  const std::size_t free_bytes = memory.limit_bytes - memory.used_bytes + held_bytes();
  require(needed_bytes(layout, kDeviceAlign), free_bytes,
          std::to_string(free_bytes) + " of " + std::to_string(memory.limit_bytes) + " are free",
          "use Placement::host or a smaller fraction, or a larger device");
  require(needed_bytes(layout, 1), budget_bytes,
          "Config::device_budget_bytes is " + std::to_string(budget_bytes),
          "use a smaller fraction or raise the budget");
}

void Resident::release() noexcept {
  for (void*& stream : streams_) {
    if (stream != nullptr) flow_.backend.release(stream);
    stream = nullptr;
  }
  for (std::byte** memory : {&sums_, &norms_}) {
    if (*memory != nullptr) flow_.backend.release(*memory);
    *memory = nullptr;
  }
  layout_ = {};
}

std::byte* Resident::stream_address(const plan::Segment& segment, std::size_t index) const {
  return bucket_address(segment.bucket, index) + segment.offset * sizeof(float);
}

Resident::Address Resident::address(const plan::Segment& segment) const {
  const Parameter& parameter = flow_.parameters[segment.parameter];
  Address out;
  out.param = stream_address(segment, 0);
  for (std::size_t i = 0; i < parameter.rule_streams; ++i) {
    out.state[i] = stream_address(segment, 1 + i);
  }
  if (parameter.has_ema) out.ema = stream_address(segment, flow_.streams.ema_stream());
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
  return norms_ + layout_.trust_offset[parameter];
}

void Resident::update(void* overflow_counts) {
  for (std::uint32_t i = 0; i < flow_.layout.buckets.size(); ++i) {
    if (!flow_.buckets[i].resident || !flow_.takes_part(i)) continue;
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
                                .norms = norms_ + first * sizeof(simd::BlockNorms)});
  }
  flow_.backend.lamb_trust(update_stream(), {.norms = norms_,
                                             .blocks = simd::reduce_block_count(parameter.elems),
                                             .lr = parameter.lr,
                                             .lr_trust = lr_trust(index)});
}

void Resident::update_bucket(std::uint32_t index, std::byte* overflow_counts) {
  const plan::Bucket& bucket = flow_.layout.buckets[index];
  for (std::uint32_t i = 0; i < bucket.segments; ++i) {
    const plan::Segment& segment = flow_.layout.segments[bucket.first_segment + i];
    if (flow_.segments[bucket.first_segment + i].in_update) {
      update_segment(segment, overflow_counts);
    }
  }
  flow_.backend.record(flow_.buckets[index].refreshed, update_stream());
  if (flow_.open_gate()) flow_.backend.record(updated_, update_stream());
}

void Resident::update_segment(const plan::Segment& segment, std::byte* overflow_counts) {
  const Parameter& parameter = flow_.parameters[segment.parameter];
  const Address state = address(segment);
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
