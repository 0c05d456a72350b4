// SPDX-License-Identifier: Apache-2.0
// Passes of the host's cores over the whole state: bucket by bucket, each part on its own thread.
#include <algorithm>
#include <array>
#include <cstring>

#include "core/round_up.hpp"
#include "pipeline/host_sums.hpp"
#include "pipeline/preparation.hpp"
#include "pipeline/whole_state.hpp"
#include "simd/convert.hpp"
#include "simd/digest.hpp"
#include "simd/update.hpp"

namespace outboard::pipeline {

/// The part of one segment that one thread works on.
struct WholeState::Cut {
  const plan::Segment& segment;
  const Parameter& parameter;
  std::uint64_t first_element = 0;  // of the parameter
  std::size_t stream_count = 0;     // of its generation
  std::array<std::span<float>, optim::kMaxStreams> streams{};
  simd::Elements weight{};  // in the slot
};

void WholeState::run(std::unique_lock<std::mutex>& lock, Job job, plan::SegmentRange only) {
  job_ = job;
  if (only.count == 0) return;
  const std::uint32_t first = flow_.layout.segments[only.first].bucket;
  const std::uint32_t last = flow_.layout.segments[only.first + only.count - 1].bucket;
  for (std::uint32_t i = first; i <= last; ++i) {
    if (flow_.is_resident(i)) continue;
    const plan::Bucket& bucket = flow_.layout.buckets[i];
    exec::Task task;
    task.node = bucket.node;
    task.priority = i;
    task.parts = flow_.executor.threads(bucket.node);
    task.cost_elems = bucket.elems;
    task.body = &WholeState::body;
    task.done = &WholeState::done;
    task.context = this;
    task.argument = i;
    flow_.post(task);
  }
  const auto finished = [&] { return flow_.tasks_pending == 0; };
  const char* who = "a pass over the whole state";
  if (job != Job::load) return flow_.backend.waiter().wait(lock, finished, who);
  flow_.preparation->wait(lock, finished, who);
  flow_.preparation->end(lock);
}

void WholeState::body(void* self, std::uint64_t argument, std::uint32_t part) noexcept {
  auto& whole = *static_cast<WholeState*>(self);
  const auto bucket = static_cast<std::uint32_t>(argument);
  switch (whole.job_) {
    case Job::load:
      return whole.load_part(bucket, part);
    case Job::reread:
      return whole.reread_part(bucket, part);
    case Job::refresh:
      return whole.refresh_part(bucket, part);
    case Job::digest:
      return whole.digest_part(bucket, part);
  }
}

void WholeState::done(void* self, std::uint64_t argument) noexcept {
  auto& whole = *static_cast<WholeState*>(self);
  const std::lock_guard lock(whole.flow_.mutex);
  if (whole.job_ == Job::load) whole.count_loaded(static_cast<std::uint32_t>(argument));
  whole.flow_.finish_task();
}

void WholeState::count_loaded(std::uint32_t bucket) noexcept {
  const std::uint64_t sums = flow_.sums != nullptr ? sizeof(float) : 0;
  const std::uint64_t each = flow_.generation(bucket).streams.elem_bytes() + sums;
  flow_.preparation->count(flow_.layout.buckets[bucket].padded_elems * each);
}

/// Splits a bucket as the update does, so that a page is first touched by the thread that owns it.
template <class Use>
void WholeState::for_each_cut(std::uint32_t index, std::uint32_t part, Use use) noexcept {
  const plan::Bucket& bucket = flow_.layout.buckets[index];
  const std::uint64_t parts = flow_.executor.threads(bucket.node);
  const std::uint64_t even = (bucket.padded_elems + parts - 1) / parts;
  const std::uint64_t part_elems = core::round_up(even, kPartAlignElems);
  const std::uint64_t begin = std::min(part_elems * part, bucket.padded_elems);
  const std::uint64_t end = std::min(begin + part_elems, bucket.padded_elems);
  const auto state = flow_.lease(index);
  std::byte* slot = flow_.buckets[index].slot.bytes.data();
  for (std::uint32_t i = 0; i < bucket.segments; ++i) {
    const plan::Segment& segment = flow_.layout.segments[bucket.first_segment + i];
    const std::uint64_t from = std::max(begin, segment.offset);
    const std::uint64_t to = std::min(end, segment.offset + segment.elems);
    if (from >= to) continue;
    Cut cut{segment, flow_.parameters[segment.parameter],
            segment.first_element + (from - segment.offset),
            flow_.generation(index).streams.streams()};
    for (std::size_t k = 0; k < cut.stream_count; ++k) {
      cut.streams[k] = state.template stream<float>(k).subspan(from, to - from);
    }
    cut.weight = {slot + from * dtype_bytes(bucket.dtype), optim::format_of(bucket.dtype)};
    use(cut);
  }
}

void WholeState::load_part(std::uint32_t index, std::uint32_t part) noexcept {
  if (flow_.sums != nullptr) {
    flow_.sums->touch(index, part, flow_.executor.threads(flow_.layout.buckets[index].node));
  }
  for_each_cut(index, part, [&](const Cut& cut) { load_cut(cut); });
}

void WholeState::load_cut(const Cut& cut) noexcept {
  const std::span<float> param = cut.streams[0];
  const auto given = master(cut.segment.parameter);
  if (given.empty()) {
    simd::to_float({cut.weight.data, cut.weight.format}, param);
  } else {
    std::ranges::copy(given.subspan(cut.first_element, param.size()), param.begin());
    flow_.weight_overflows[cut.segment.parameter] += simd::from_float(param, cut.weight);
  }
  // The streams that its own rule lacks too: their pages are to be there before the first step.
  for (std::size_t i = 1; i < cut.stream_count; ++i) std::ranges::fill(cut.streams[i], 0.0F);
  if (cut.parameter.rule_streams > 0) {
    std::ranges::fill(cut.streams[1], cut.parameter.initial_state);
  }
  if (cut.parameter.has_ema) {
    std::ranges::copy(param, cut.streams[cut.parameter.ema_stream].begin());
  }
}

void WholeState::refresh_part(std::uint32_t index, std::uint32_t part) noexcept {
  for_each_cut(index, part, [&](const Cut& cut) {
    const auto& options = refreshed_[cut.segment.parameter];
    if (!options) return;
    std::memset(cut.weight.data, 0, cut.streams[0].size() * dtype_bytes(cut.parameter.dtype));
    const simd::UpdateShard shard{.grad = {cut.weight.data, cut.weight.format},
                                  .weight = cut.weight,
                                  .param = cut.streams[0],
                                  .state = {},
                                  .first_element = cut.first_element};
    flow_.weight_overflows[cut.segment.parameter] += simd::update(shard, kRefreshScalars, *options);
  });
}

void WholeState::reread_part(std::uint32_t index, std::uint32_t part) noexcept {
  for_each_cut(index, part, [&](const Cut& cut) {
    if (cut.segment.parameter != only_parameter_) return;
    simd::to_float({cut.weight.data, cut.weight.format}, cut.streams[0]);
  });
}

void WholeState::digest_part(std::uint32_t index, std::uint32_t part) noexcept {
  std::uint64_t sum = 0;
  for_each_cut(index, part, [&](const Cut& cut) {
    simd::DigestShard shard;
    shard.parameter = cut.segment.parameter;
    shard.first_element = cut.first_element;
    shard.param = cut.streams[0];
    for (std::size_t i = 0; i < cut.parameter.rule_streams; ++i) {
      shard.state[i] = cut.streams[1 + i];
    }
    if (cut.parameter.has_ema) shard.ema = cut.streams[cut.parameter.ema_stream];
    sum += simd::digest_state(shard);
  });
  sum_.fetch_add(sum);
}

}  // namespace outboard::pipeline
