// SPDX-License-Identifier: Apache-2.0
// The state in pieces, for what saves and loads it: straight from and into the host's arenas, and
// through a small buffer where it is the device's.
#include <algorithm>
#include <vector>

#include "pipeline/guarded.hpp"

namespace outboard::pipeline {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{4} << 20;

std::span<std::byte> host_bytes(const Flow& flow, const plan::Segment& segment,
                                std::size_t stream) {
  const auto all = flow.lease(segment.bucket).stream<float>(stream);
  return std::as_writable_bytes(all.subspan(segment.offset, segment.elems));
}

/// One stream of a parameter in order: on_host(its bytes) for each segment of the host's arenas,
/// and on_device(piece, bytes of a buffer for it) for each piece of one of the device's.
template <class OnHost, class OnDevice>
void for_each_part(const Flow& flow, const Parameter& parameter, std::size_t own, OnHost on_host,
                   OnDevice on_device) {
  const std::size_t stream = WholeState::stream_of(parameter, own);
  std::vector<std::byte> buffer;
  for (std::uint32_t i = 0; i < parameter.segments.count; ++i) {
    const plan::Segment& segment = flow.layout.segments[parameter.segments.first + i];
    if (!flow.is_resident(segment.bucket)) {
      on_host(host_bytes(flow, segment, stream));
      continue;
    }
    buffer.resize(std::min(kBufferBytes, segment.elems * optim::kStateBytes));
    const std::uint64_t most = buffer.size() / optim::kStateBytes;
    for (std::uint64_t first = 0; first < segment.elems; first += most) {
      const std::uint64_t count = std::min(most, segment.elems - first);
      on_device({segment, stream, first}, std::span(buffer).first(count * optim::kStateBytes));
    }
  }
}

}  // namespace

void Pipeline::prepare_state_access(const std::string& call) {
  guarded([&](auto& lock) {
    require_none_pending(call);
    settle(lock);
  });
}

void Pipeline::prepare_state_change(const std::string& call) {
  prepare_state_access(call);
  guarded([&](auto&) { streamed_->forget(); });
}

bool Pipeline::state_on_host() {
  const std::lock_guard lock(flow_.mutex);
  return flow_.resident_count == 0;
}

void Pipeline::read_pieces(ParameterId id, std::size_t own, StateSink sink) {
  const auto from_device = [&](const WholeState::ResidentPiece& from, std::span<std::byte> piece) {
    guarded([&](auto& lock) { whole_state_->copy_out(lock, from, piece); });
    sink(piece);
  };
  for_each_part(flow_, flow_.parameters[id.value], own, sink, from_device);
}

void Pipeline::write_pieces(ParameterId id, std::size_t own, StateFill fill) {
  const auto to_device = [&](const WholeState::ResidentPiece& to, std::span<std::byte> piece) {
    fill(piece);
    guarded([&](auto& lock) { whole_state_->copy_in(lock, to, piece); });
  };
  for_each_part(flow_, flow_.parameters[id.value], own, fill, to_device);
}

void Pipeline::begin_snapshot(const std::string& call, std::size_t buffer_bytes,
                              std::function<void()> can_go_on) {
  guarded([&](auto& lock) {
    require_none_pending(call);
    if (flow_.device_count() > 0) settle(lock);
    Snapshot::Start start;
    start.buffer_bytes = buffer_bytes;
    start.digest = whole_state_->digest_beside_host(lock, gate_->loss_scale());
    start.can_go_on = std::move(can_go_on);
    start.is_updating = [&](std::uint32_t bucket) { return update_->running(bucket); };
    snapshot_->begin(lock, std::move(start));
  });
}

void Pipeline::end_snapshot() {
  const std::lock_guard lock(flow_.mutex);
  snapshot_->end();
}

SavedScalars Pipeline::saved_scalars() {
  const std::lock_guard lock(flow_.mutex);
  return {gate_->loss_scale_state(), steps_, flow_.stats.steps_applied, flow_.stats.steps_skipped,
          flow_.stats.steps_partial};
}

std::uint32_t Pipeline::accumulation() {
  const std::lock_guard lock(flow_.mutex);
  return gate_->accumulation();
}

void Pipeline::finish_load(const RestoredState& restored, std::span<const optim::Group> groups) {
  guarded([&](auto& lock) {
    std::vector<bool> loaded(flow_.parameters.size());
    for (std::size_t i = 0; i < loaded.size(); ++i) {
      if (!restored.step_counts[i]) continue;
      loaded[i] = true;
      flow_.parameters[i].step_count = *restored.step_counts[i];
      flow_.parameters[i].refresh_unwaited = false;
    }
    steps_ = restored.scalars.steps;
    flow_.stats.steps_applied = restored.scalars.applied;
    flow_.stats.steps_skipped = restored.scalars.skipped;
    flow_.stats.steps_partial = restored.scalars.partial;
    gate_->restore_loss_scale(restored.scalars.loss_scale);
    readers_->order_behind(flow_.up);
    whole_state_->refresh_weights(lock, loaded, groups);
    report_weight_overflows();
    if (auto_) auto_->restarted();
  });
}

void Pipeline::poison(const Error& cause) {
  const std::lock_guard lock(flow_.mutex);
  flow_.error.capture(cause.code(), cause.what());
  flow_.error.mark_reported();
  flow_.backend.waiter().wake();
}

bool Pipeline::broken() {
  const std::lock_guard lock(flow_.mutex);
  return flow_.broken();
}

}  // namespace outboard::pipeline
