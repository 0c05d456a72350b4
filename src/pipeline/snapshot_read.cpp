// SPDX-License-Identifier: Apache-2.0
// What the reader of a snapshot does: see snapshot.hpp.
#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "outboard/error.hpp"
#include "pipeline/snapshot.hpp"
#include "simd/digest.hpp"

namespace outboard::pipeline {

Snapshot::Taken Snapshot::take(std::span<std::byte> buffer) {
  std::unique_lock lock(flow_.mutex);
  if (!active_) return {};
  if (item_ == items_.size()) {
    end();
    return {};
  }
  const Item& item = items_[item_];
  const Bucket& bucket = buckets_[item.bucket];
  const auto out = buffer.first(std::min<std::uint64_t>(buffer.size(), item.bytes - at_));
  if (piece_ != Piece::none) return take_from_device(out);
  if (bucket.copied) return take_from_copy(lock, out);
  if (!bucket.ready) {
    require_sound();
    return {Outcome::later, 0};
  }
  return flow_.is_resident(item.bucket) ? take_from_device(out) : take_from_arena(lock, out);
}

/// What is awaited will come.
void Snapshot::require_sound() {
  if (!flow_.broken()) return;
  const std::string cause = flow_.error.any() ? flow_.error.text() : flow_.backend.lost_reason();
  throw Error(ErrorCode::poisoned, "a save was given up with the engine, which failed: " + cause);
}

Snapshot::Taken Snapshot::take_from_arena(std::unique_lock<std::mutex>& lock,
                                          std::span<std::byte> out) {
  const Item& item = items_[item_];
  Bucket& bucket = buckets_[item.bucket];
  bucket.reading = true;
  lock.unlock();
  if (!std::exchange(bucket.summed, true)) digest_ += digest_of_arena(item.bucket);
  std::memcpy(out.data(), arena(item).data() + at_, out.size());
  lock.lock();
  bucket.reading = false;
  given(out.size());
  return {Outcome::piece, out.size()};
}

/// Nobody but the reader gives its chunks back.
Snapshot::Taken Snapshot::take_from_copy(std::unique_lock<std::mutex>& lock,
                                         std::span<std::byte> out) {
  const Item& item = items_[item_];
  Bucket& bucket = buckets_[item.bucket];
  lock.unlock();
  if (!std::exchange(bucket.summed, true)) digest_ += digest_of_copy(item.bucket);
  std::byte* next = out.data();
  for_each_run(bucket, item.place + at_, item.place + at_ + out.size(),
               [&](const Item&, std::uint64_t, std::span<std::byte> copy) {
                 std::memcpy(next, copy.data(), copy.size());
                 next += copy.size();
               });
  lock.lock();
  given(out.size());
  return {Outcome::piece, out.size()};
}

Snapshot::Taken Snapshot::take_from_device(std::span<std::byte> out) {
  if (piece_ == Piece::here) {
    piece_ = Piece::none;
    std::memcpy(out.data(), landing_.data(), landing_bytes_);
    given(landing_bytes_);
    return {Outcome::piece, landing_bytes_};
  }
  require_sound();
  if (piece_ == Piece::on_its_way) return {Outcome::later, 0};
  const Item& item = items_[item_];
  landing_bytes_ = std::min(out.size(), landing_.size());
  const std::byte* from =
      resident_.stream_address(flow_.layout.segments[item.segment], item.stream) + at_;
  try {
    flow_.backend.copy_to_host(std::span(landing_).first(landing_bytes_), from, down_);
    flow_.backend.record(landed_, down_);
    flow_.notify(landed_, {&Snapshot::piece_landed, this, 0});
  } catch (const Error& failure) {
    flow_.error.capture(failure.code(), failure.what());
    flow_.backend.waiter().wake();
    throw;
  }
  piece_ = Piece::on_its_way;
  return {Outcome::later, 0};
}

void Snapshot::piece_landed(void* self, std::uint64_t /*none*/) noexcept {
  auto& snapshot = *static_cast<Snapshot*>(self);
  const std::lock_guard lock(snapshot.flow_.mutex);
  snapshot.piece_ = Piece::here;
  if (snapshot.can_go_on_) snapshot.can_go_on_();
  snapshot.flow_.finish_callback();
}

/// So much more of the item.
void Snapshot::given(std::size_t bytes) noexcept {
  const Item& item = items_[item_];
  Bucket& bucket = buckets_[item.bucket];
  bucket.given += bytes;
  at_ += bytes;
  if (at_ == item.bytes) {
    item_ += 1;
    at_ = 0;
  }
  if (bucket.copied) free_given(bucket);
  if (!active_) return;
  if (held_ > 0) try_held();
  flow_.backend.waiter().wake();
}

/// Chunks that the reader has been past.
void Snapshot::free_given(Bucket& bucket) noexcept {
  const bool all = bucket.given == bucket.bytes;
  while (bucket.freed < bucket.chunks.size() &&
         (all || bucket.given >= bucket.copied_from + (bucket.freed + 1) * kChunkBytes)) {
    free_chunks_.push_back(bucket.chunks[bucket.freed++]);
  }
}

/// `streams(item, offset)`: its elements from there on, as far as they lie in a row.
template <class Streams>
std::uint64_t Snapshot::digest_of(std::uint32_t index, Streams streams) const {
  std::uint64_t sum = 0;
  std::size_t next = 0;  // a segment's streams follow each other
  const Bucket& bucket = buckets_[index];
  const plan::Bucket& shape = flow_.layout.buckets[index];
  for (std::uint32_t s = shape.first_segment; s < shape.first_segment + shape.segments; ++s) {
    const plan::Segment& segment = flow_.layout.segments[s];
    const Parameter& parameter = flow_.parameters[segment.parameter];
    std::array<const Item*, optim::kMaxStreams> own{};
    std::size_t count = 0;
    while (next < bucket.items.size() && items_[bucket.items[next]].segment == s) {
      own.at(count++) = &items_[bucket.items[next++]];
    }
    for (std::uint64_t first = 0; first < segment.elems;) {
      std::array<std::span<const float>, optim::kMaxStreams> spans{};
      std::uint64_t elems = segment.elems - first;
      for (std::size_t k = 0; k < count; ++k) {
        spans.at(k) = streams(*own.at(k), first);
        elems = std::min<std::uint64_t>(elems, spans.at(k).size());
      }
      simd::DigestShard shard;
      shard.parameter = segment.parameter;
      shard.first_element = segment.first_element + first;
      shard.param = spans[0].first(elems);
      for (std::size_t k = 0; k < parameter.rule_streams; ++k) {
        shard.state.at(k) = spans.at(1 + k).first(elems);
      }
      if (parameter.has_ema) shard.ema = spans.at(count - 1).first(elems);
      sum += simd::digest_state(shard);
      first += elems;
    }
  }
  return sum;
}

std::uint64_t Snapshot::digest_of_arena(std::uint32_t index) const {
  return digest_of(index, [&](const Item& item, std::uint64_t first) {
    const auto bytes = arena(item);
    return std::span(reinterpret_cast<const float*>(bytes.data()), item.bytes / sizeof(float))
        .subspan(first);
  });
}

/// All of the bucket: it is summed before any of it is given out.
std::uint64_t Snapshot::digest_of_copy(std::uint32_t index) const {
  const Bucket& bucket = buckets_[index];
  return digest_of(index, [&](const Item& item, std::uint64_t first) {
    const std::uint64_t from = item.place + first * sizeof(float);
    const std::uint64_t in_chunk = from % kChunkBytes;
    const std::uint64_t bytes = std::min(item.place + item.bytes - from, kChunkBytes - in_chunk);
    const std::byte* chunk = buffer_.get() + bucket.chunks[from / kChunkBytes] * kChunkBytes;
    return std::span(reinterpret_cast<const float*>(chunk + in_chunk), bytes / sizeof(float));
  });
}

}  // namespace outboard::pipeline
