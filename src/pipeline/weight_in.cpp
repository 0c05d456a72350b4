// SPDX-License-Identifier: Apache-2.0
#include "pipeline/weight_in.hpp"

namespace outboard::pipeline {

void WeightIn::queue_ahead(std::uint32_t bucket) {
  flow_.backend.wait_flag(flow_.up, flow_.buckets[bucket].flag, flow_.epoch);
  queue_copies(bucket);
}

void WeightIn::queue_copies(std::uint32_t index) {
  const plan::Bucket& bucket = flow_.layout.buckets[index];
  flow_.order_behind_readers(index, flow_.up);
  Packing* packing = flow_.buckets[index].packing;
  const bool packed = packing != nullptr && packing->takes_all(index);
  for (std::uint32_t i = 0; i < bucket.segments; ++i) {
    const plan::Segment& segment = flow_.layout.segments[bucket.first_segment + i];
    if (!flow_.segments[bucket.first_segment + i].in_update) continue;
    if (packed && bucket.packs(segment)) continue;
    const auto bytes = flow_.slot_bytes(segment);
    flow_.backend.copy_to_device(flow_.weight_address(segment), bytes, flow_.up);
    flow_.stats.weight_bytes_up += bytes.size();
    flow_.stats.copies_up += 1;
  }
  if (packed) return packing->queue_weights(index);
  flow_.backend.record(flow_.buckets[index].refreshed, flow_.up);
}

void WeightIn::start(Ticket ticket) noexcept {
  start(ticket.bucket);
}

void WeightIn::start(std::uint32_t bucket) noexcept {
  if (flow_.options.uploads_ahead) {
    flow_.backend.write_flag(flow_.buckets[bucket].flag, flow_.epoch);
    finish(bucket);
  } else if (flow_.buckets[bucket].slot.direct) {
    flow_.capture_failure([&] { queue_copies(bucket); });
    finish(bucket);
  } else {
    flow_.capture_failure([&] { flow_.buckets[bucket].ring->request_weight(bucket); });
  }
}

void WeightIn::finish(std::uint32_t bucket) noexcept {
  flow_.buckets[bucket].updating = false;
  flow_.uploads_unqueued -= 1;
  flow_.backend.waiter().wake();
}

void WeightIn::wait_refreshed(std::unique_lock<std::mutex>& lock, std::uint32_t index,
                              NativeStream stream) {
  const Parameter& parameter = flow_.parameters[index];
  if (!parameter.ever_refreshed) return;
  const plan::SegmentRange range = parameter.segments;
  // Each in order on one stream: the last bucket covers the others, but for those that unpack.
  // Resident buckets are updated before streamed ones.
  const BucketRun* last_ahead = nullptr;
  const BucketRun* last_resident = nullptr;
  const BucketRun* last_streamed = nullptr;
  for (std::uint32_t i = range.first; i < range.first + range.count; ++i) {
    const std::uint32_t index_of_bucket = flow_.layout.segments[i].bucket;
    const BucketRun& bucket = flow_.buckets[index_of_bucket];
    if (bucket.home != plan::Home::host && !flow_.open_gate()) {
      (bucket.home == plan::Home::device_resident ? last_resident : last_streamed) = &bucket;
    } else if (flow_.options.uploads_ahead &&
               flow_.layout.buckets[index_of_bucket].packed_segments > 0) {
      flow_.backend.wait_event(stream, bucket.refreshed);
    } else if (flow_.options.uploads_ahead) {
      last_ahead = &bucket;
    } else {
      const auto queued = [&] { return !flow_.segments[i].in_update || !bucket.updating; };
      if (!queued()) flow_.wait_until(lock, queued, "wait(): the upload of a refreshed weight");
      flow_.backend.wait_event(stream, bucket.refreshed);
    }
  }
  for (const BucketRun* bucket : {last_resident, last_streamed, last_ahead}) {
    if (bucket != nullptr) flow_.backend.wait_event(stream, bucket->refreshed);
  }
}

}  // namespace outboard::pipeline
