// SPDX-License-Identifier: Apache-2.0
#include "pipeline/snapshot.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "core/round_up.hpp"
#include "outboard/error.hpp"
#include "pipeline/added_time.hpp"
#include "pipeline/whole_state.hpp"

namespace outboard::pipeline {
namespace {

/// Of a bucket's copy that is worth a thread of its own.
constexpr std::uint64_t kMinPartBytes = std::uint64_t{256} << 10;
/// What comes from the device in one go.
constexpr std::size_t kLandingBytes = std::size_t{1} << 20;

}  // namespace

Snapshot::Snapshot(Flow& flow, Resident& resident, SnapshotListener& listener)
    : flow_(flow), resident_(resident), listener_(listener) {
  core::VirtualLoop* loop = flow_.backend.virtual_loop();
  if (loop == nullptr) return;
  reporter_ = loop->add_reporter([this](std::string& text) {
    if (active_) text += describe();
  });
}

Snapshot::~Snapshot() {
  if (reporter_) flow_.backend.virtual_loop()->remove_reporter(*reporter_);
  if (down_ != NativeStream{}) flow_.backend.destroy_stream(down_);
  if (landed_.index != device::Event{}.index) flow_.backend.destroy_event(landed_);
}

// --- beginning and end --------------------------------------------------------------------------

void Snapshot::begin(std::unique_lock<std::mutex>& lock, Start start) {
  flow_.wait_until(
      lock, [&] { return copying_ == 0 && piece_ != Piece::on_its_way; },
      "a save: what the one before left on its way");
  try {
    list_items();
    allocate(start.buffer_bytes);
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::out_of_memory,
                "save_async(): no memory for a snapshot of " + std::to_string(start.buffer_bytes) +
                    " bytes; lower Config::snapshot_bytes, or use save()");
  }
  if (flow_.resident_count > 0 && down_ == NativeStream{}) open_way_down();
  for (std::uint32_t i = 0; i < buckets_.size(); ++i) {
    buckets_[i].ready = !start.is_updating(i);
    buckets_[i].summed = flow_.is_resident(i);
  }
  // A copy for each bucket, beside all that a step posts.
  flow_.executor.reserve(3 * (flow_.buckets.size() + flow_.segments.size()) + 512);
  digest_ = start.digest;
  can_go_on_ = std::move(start.can_go_on);
  piece_ = Piece::none;
  item_ = 0;
  at_ = 0;
  active_ = true;
}

/// A device whose memory is full may have no room for a stream: that ends the save, not the run.
void Snapshot::open_way_down() {
  try {
    landing_.resize(kLandingBytes);
    if (landed_.index == device::Event{}.index) landed_ = flow_.backend.create_event();
    down_ = flow_.backend.create_stream("saved state down");
  } catch (const Error& failure) {
    if (flow_.backend.lost()) throw;
    throw Error(ErrorCode::out_of_memory,
                std::string("save_async(): no stream for state that is on the device: ") +
                    failure.what() + "; leave the device some memory, or use save()");
  }
}

void Snapshot::list_items() {
  items_.clear();
  buckets_.assign(flow_.buckets.size(), {});
  for (const Parameter& parameter : flow_.parameters) {
    const std::size_t own = 1 + parameter.rule_streams + (parameter.has_ema ? 1 : 0);
    for (std::size_t k = 0; k < own; ++k) {
      for (std::uint32_t i = 0; i < parameter.segments.count; ++i) {
        const std::uint32_t index = parameter.segments.first + i;
        const plan::Segment& segment = flow_.layout.segments[index];
        Bucket& bucket = buckets_[segment.bucket];
        const std::uint64_t bytes = segment.elems * optim::kStateBytes;
        bucket.items.push_back(static_cast<std::uint32_t>(items_.size()));
        items_.push_back(
            {index, segment.bucket, WholeState::stream_of(parameter, k), bytes, bucket.bytes});
        bucket.bytes += bytes;
      }
    }
  }
  for (Bucket& bucket : buckets_) bucket.chunks.reserve(chunk_count(bucket.bytes));
}

/// No more than all of the state has use for.
void Snapshot::allocate(std::size_t bytes) {
  std::size_t useful = 0;
  for (const Bucket& bucket : buckets_) useful += chunk_count(bucket.bytes);
  const std::size_t chunks = std::min(bytes / kChunkBytes, useful);
  if (chunks * kChunkBytes > buffer_bytes_) {
    buffer_.reset();
    buffer_bytes_ = 0;
    buffer_ = std::make_unique_for_overwrite<std::byte[]>(chunks * kChunkBytes);
    buffer_bytes_ = chunks * kChunkBytes;
  }
  free_chunks_.resize(buffer_bytes_ / kChunkBytes);
  for (std::size_t i = 0; i < free_chunks_.size(); ++i) {
    free_chunks_[i] = static_cast<std::uint32_t>(free_chunks_.size() - 1 - i);
  }
}

void Snapshot::end() noexcept {
  if (!active_) return;
  active_ = false;
  can_go_on_ = nullptr;
  for (std::uint32_t i = 0; i < buckets_.size(); ++i) {
    // A copy that is being made ends by itself, and lets the update go.
    if (buckets_[i].held == Held::for_room || buckets_[i].held == Held::for_reader) let_go(i);
  }
  flow_.backend.waiter().wake();
}

std::string Snapshot::describe() const {
  std::string text = "a save has given " + std::to_string(item_) + " of " +
                     std::to_string(items_.size()) + " streams' parts, " + std::to_string(held_) +
                     " updates wait for it";
  if (item_ == items_.size()) return text + "\n";
  const Bucket& bucket = buckets_[items_[item_].bucket];
  text += ", next is bucket " + std::to_string(items_[item_].bucket);
  if (piece_ == Piece::on_its_way) text += ", on its way from the device";
  if (!bucket.ready) text += ", whose update has not ended";
  return text + "\n";
}

// --- an update is to begin ----------------------------------------------------------------------

bool Snapshot::secure(std::uint32_t index) noexcept {
  if (!active_) return true;
  Bucket& bucket = buckets_[index];
  if (!bucket.ready) return true;  // the last step's, whose result is this moment's state
  if ((bucket.copied || bucket.given == bucket.bytes) && !bucket.reading) return true;
  hold(bucket, Held::for_room);
  try_secure(index);
  return false;
}

void Snapshot::bucket_updated(std::uint32_t index) noexcept {
  if (!active_ || buckets_[index].ready) return;
  buckets_[index].ready = true;
  if (can_go_on_) can_go_on_();
}

/// Of one that is held back.
void Snapshot::try_secure(std::uint32_t index) noexcept {
  Bucket& bucket = buckets_[index];
  if (bucket.copied || bucket.given == bucket.bytes) {
    if (bucket.reading) return hold(bucket, Held::for_reader);
    return let_go(index);
  }
  if (!has_room(bucket)) return;
  hold(bucket, Held::for_copy);
  post_copy(index);
}

void Snapshot::try_held() noexcept {
  for (std::uint32_t i = 0; held_ > 0 && i < buckets_.size(); ++i) {
    if (buckets_[i].held == Held::for_room || buckets_[i].held == Held::for_reader) try_secure(i);
  }
}

/// For room or for the reader an update waits; a copy is work.
void Snapshot::hold(Bucket& bucket, Held why) noexcept {
  const auto waits = [](Held held) { return held == Held::for_room || held == Held::for_reader; };
  const bool before = waits(bucket.held);
  const bool now = waits(why);
  bucket.held = why;
  if (now && !before && held_++ == 0) held_since_ns_ = flow_.backend.now_ns();
  if (!before || now || --held_ > 0) return;
  flow_.stats.save_wait_us += static_cast<double>(flow_.backend.now_ns() - held_since_ns_) * 1e-3;
}

/// What the device updates waits for nothing but its caller, who is woken.
void Snapshot::let_go(std::uint32_t index) noexcept {
  hold(buckets_[index], Held::no);
  if (flow_.updated_on_device(index)) return flow_.backend.waiter().wake();
  listener_.bucket_secured(index);
}

std::size_t Snapshot::chunks_of(const Bucket& bucket) const noexcept {
  return chunk_count(bucket.bytes - bucket.given);
}

bool Snapshot::has_room(const Bucket& bucket) const noexcept {
  return chunks_of(bucket) <= free_chunks_.size();
}

void Snapshot::reserve(Bucket& bucket) noexcept {
  bucket.copied_from = bucket.given;
  bucket.freed = 0;
  bucket.chunks.clear();
  for (std::size_t i = chunks_of(bucket); i > 0; --i) {
    bucket.chunks.push_back(free_chunks_.back());
    free_chunks_.pop_back();
  }
  flow_.stats.save_copied_bytes += bucket.bytes - bucket.given;
}

void Snapshot::post_copy(std::uint32_t index) noexcept {
  Bucket& bucket = buckets_[index];
  reserve(bucket);
  const std::uint64_t bytes = bucket.bytes - bucket.copied_from;
  exec::Task task;
  task.node = flow_.layout.buckets[index].node;
  task.priority = index;
  const std::uint64_t useful = (bytes + kMinPartBytes - 1) / kMinPartBytes;
  task.parts = static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(useful, 1, flow_.executor.threads(task.node)));
  bucket.part_bytes = core::round_up((bytes + task.parts - 1) / task.parts, std::uint64_t{64});
  task.cost_elems = 2 * bytes / exec::kBytesPerCostElem;
  task.body = &Snapshot::copy_body;
  task.done = &Snapshot::copy_done;
  task.context = this;
  task.argument = index;
  copying_ += 1;
  flow_.post(task);
}

void Snapshot::copy_body(void* self, std::uint64_t index, std::uint32_t part) noexcept {
  const auto& snapshot = *static_cast<const Snapshot*>(self);
  const Bucket& bucket = snapshot.buckets_[index];
  const std::uint64_t from = std::min(bucket.bytes, bucket.copied_from + part * bucket.part_bytes);
  const std::uint64_t to = std::min(bucket.bytes, from + bucket.part_bytes);
  snapshot.for_each_run(
      bucket, from, to, [&](const Item& item, std::uint64_t offset, std::span<std::byte> copy) {
        std::memcpy(copy.data(), snapshot.arena(item).data() + offset, copy.size());
      });
}

void Snapshot::copy_done(void* self, std::uint64_t argument) noexcept {
  auto& snapshot = *static_cast<Snapshot*>(self);
  const auto index = static_cast<std::uint32_t>(argument);
  const std::lock_guard lock(snapshot.flow_.mutex);
  Bucket& bucket = snapshot.buckets_[index];
  snapshot.copying_ -= 1;
  bucket.copied = true;
  snapshot.free_given(bucket);
  if (snapshot.active_) {
    snapshot.try_secure(index);
    snapshot.try_held();
  } else {
    snapshot.let_go(index);
  }
  snapshot.flow_.count_sums(snapshot.flow_.layout.buckets[index].node, 0);
  snapshot.flow_.finish_task();
}

// --- the device is to update --------------------------------------------------------------------

void Snapshot::secure_device_buckets(std::unique_lock<std::mutex>& lock) {
  if (!active_ || flow_.device_count() == 0) return;
  const AddedTime time(flow_, flow_.stats.save_wait_us);
  for (std::uint32_t i = 0; active_ && i < buckets_.size(); ++i) {
    if (!flow_.updated_on_device(i)) continue;
    Bucket& bucket = buckets_[i];
    const auto secured = [&] {
      if (bucket.held == Held::for_copy) return false;  // of a save that has ended meanwhile, too
      return !active_ || ((bucket.copied || bucket.given == bucket.bytes) && !bucket.reading);
    };
    const auto can_copy = [&] { return bucket.held == Held::no && has_room(bucket); };
    const char* who = "step(): a running save, which has not got so far";
    flow_.wait_until(
        lock, [&] { return secured() || can_copy(); }, who);
    if (secured()) continue;
    hold(bucket, Held::for_copy);
    if (flow_.is_resident(i)) {
      copy_from_device(lock, i);
    } else {
      post_copy(i);
    }
    flow_.wait_until(lock, secured, who);
  }
}

/// Behind what the reader has on its way from there.
void Snapshot::copy_from_device(std::unique_lock<std::mutex>& lock, std::uint32_t index) {
  Bucket& bucket = buckets_[index];
  reserve(bucket);
  for_each_run(bucket, bucket.copied_from, bucket.bytes,
               [&](const Item& item, std::uint64_t offset, std::span<std::byte> copy) {
                 const plan::Segment& segment = flow_.layout.segments[item.segment];
                 flow_.backend.copy_to_host(
                     copy, resident_.stream_address(segment, item.stream) + offset, down_);
               });
  flow_.backend.record(landed_, down_);
  copying_ += 1;  // a reader that gives up leaves the chunks alone until then
  flow_.synchronize(lock, landed_, "step(): a running save's copy of resident state");
  copying_ -= 1;
  bucket.copied = true;
  free_given(bucket);
  hold(bucket, Held::no);
  flow_.backend.waiter().wake();
}

std::span<const std::byte> Snapshot::arena(const Item& item) const {
  const plan::Segment& segment = flow_.layout.segments[item.segment];
  const auto stream = flow_.lease(item.bucket).stream<float>(item.stream);
  return std::as_bytes(stream.subspan(segment.offset, segment.elems));
}

}  // namespace outboard::pipeline
