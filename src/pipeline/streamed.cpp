// SPDX-License-Identifier: Apache-2.0
#include "pipeline/streamed.hpp"

#include <algorithm>
#include <utility>

#include "core/host_layout.hpp"
#include "core/round_up.hpp"
#include "memory/lock_limit.hpp"

namespace outboard::pipeline {

Streamed::Streamed(Flow& flow, Resident& resident) : flow_(flow), resident_(resident) {}

Streamed::~Streamed() {
  for (const NativeStream stream : {in_, out_}) {
    if (stream != NativeStream{}) flow_.backend.destroy_stream(stream);
  }
  release();
  const auto destroy = [&](device::Event event) {
    if (event.index != device::Event{}.index) flow_.backend.destroy_event(event);
  };
  for (const Buffer& buffer : ring_) {
    destroy(buffer.here);
    destroy(buffer.left);
  }
  destroy(updated_);
}

// --- memory -------------------------------------------------------------------------------------

std::size_t Streamed::stream_bytes(std::uint32_t bucket) const {
  return core::round_up(flow_.layout.buckets[bucket].padded_elems * sizeof(float),
                        core::kDeviceAlign);
}

std::size_t Streamed::needed_bytes(const std::vector<plan::Home>& homes) const {
  std::size_t largest = 0;
  for (std::uint32_t i = 0; i < homes.size(); ++i) {
    if (homes[i] != plan::Home::device_streamed) continue;
    largest = std::max(largest, streams(i) * stream_bytes(i));
  }
  return ring_.size() * largest;
}

void Streamed::allocate() {
  const std::vector<plan::Home> homes = flow_.homes();
  const std::size_t needed = needed_bytes(homes);
  if (needed == 0) return;
  create_streams_and_events();
  if (needed > memory_.bytes) {
    auto* address = static_cast<std::byte*>(flow_.backend.allocate(needed));
    before_ = std::exchange(memory_, {address, needed});
    forget();
  }
  buckets_.clear();
  for (std::uint32_t i = 0; i < homes.size(); ++i) {
    if (homes[i] == plan::Home::device_streamed) buckets_.push_back(i);
  }
}

void Streamed::give_back(Memory& memory) noexcept {
  if (memory.address != nullptr) flow_.backend.release(memory.address);
  memory = {};
}

void Streamed::settle() noexcept {
  give_back(before_);
}

void Streamed::go_back(const Mark& mark, std::size_t buckets) noexcept {
  for (std::size_t i = mark.pinned; i < pinned_.size(); ++i) {
    flow_.backend.unregister_host(pinned_[i]);
  }
  pinned_.erase(pinned_.begin() + static_cast<std::ptrdiff_t>(mark.pinned), pinned_.end());
  if (memory_.address != mark.buffers) {
    give_back(memory_);
    memory_ = std::exchange(before_, {});
    forget();
  }
  std::erase_if(buckets_, [&](std::uint32_t bucket) { return bucket >= buckets; });
}

void Streamed::create_streams_and_events() {
  const auto create = [&](device::Event& event) {
    if (event.index == device::Event{}.index) event = flow_.backend.create_event();
  };
  for (Buffer& buffer : ring_) {
    create(buffer.here);
    create(buffer.left);
  }
  create(updated_);
  if (in_ == NativeStream{}) in_ = flow_.backend.create_stream("state up");
  if (out_ == NativeStream{}) out_ = flow_.backend.create_stream("state down");
}

void Streamed::release() noexcept {
  give_back(memory_);
  give_back(before_);
  for (const std::span<std::byte> memory : pinned_) flow_.backend.unregister_host(memory);
  pinned_.clear();
  buckets_.clear();
  forget();
}

std::string Streamed::pin() {
  if (buckets_.empty()) return {};
  std::size_t wanted = 0;
  std::size_t obtained = 0;
  std::size_t refused = SIZE_MAX;  // the smallest
  for (const Generation& generation : flow_.generations) {
    for (const auto& info : generation.state.arenas()) {
      const std::span<std::byte> memory = info.arena.bytes();
      if (memory.empty()) continue;
      wanted += memory.size();
      pinned_.reserve(pinned_.size() + 1);
      if (!pinned(memory.data())) {
        if (!flow_.backend.register_host(memory)) {
          refused = std::min(refused, memory.size());
          continue;
        }
        pinned_.push_back(memory);
      }
      obtained += memory.size();
    }
  }
  if (obtained == wanted) return {};
  return "pinned host memory: streamed optimizer state takes " + std::to_string(wanted) +
         " bytes, " + std::to_string(obtained) +
         " are pinned; the device copies the rest from and to pageable memory, which is slower and "
         "may keep step() until a copy is done; " +
         memory::why_refused(memory::read_lock_use(), refused) + "; or use Placement::host";
}

bool Streamed::pinned(const void* arena) const noexcept {
  return std::ranges::any_of(pinned_, [&](auto memory) { return memory.data() == arena; });
}

void Streamed::forget() noexcept {
  for (Buffer& buffer : ring_) buffer.bucket = kNone;
}

// --- a step -------------------------------------------------------------------------------------

Streamed::Buffer* Streamed::holding(std::uint32_t bucket) noexcept {
  const auto found = std::ranges::find(ring_, bucket, &Buffer::bucket);
  return found == ring_.end() ? nullptr : &*found;
}

std::byte* Streamed::stream_address(const Buffer& buffer, std::size_t stream) const noexcept {
  const auto index = static_cast<std::size_t>(&buffer - ring_.data());
  return memory_.address + index * (memory_.bytes / ring_.size()) +
         stream * stream_bytes(buffer.bucket);
}

void Streamed::update(std::byte* overflow_counts) {
  next_ = 0;
  // State that came in early for a bucket which sits this step out makes room.
  for (Buffer& buffer : ring_) {
    if (buffer.bucket != kNone && flow_.takes_part(buffer.bucket)) continue;
    if (const std::uint32_t next = next_of_step(); next != kNone) fetch(buffer, next);
  }
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    if (!flow_.takes_part(buckets_[i])) continue;
    update_in(buffer_of(buckets_[i]), overflow_counts);
    next_ = std::max(next_, i + 1);
    fill_ring([&] { return next_in_order(); });
  }
}

/// The next bucket of this step that is in no buffer.
std::uint32_t Streamed::next_of_step() {
  for (; next_ < buckets_.size(); ++next_) {
    const std::uint32_t bucket = buckets_[next_];
    if (flow_.takes_part(bucket) && holding(bucket) == nullptr) {
      next_ += 1;
      return bucket;
    }
  }
  return kNone;
}

/// The same, then those that the next step begins with.
std::uint32_t Streamed::next_in_order() {
  if (const std::uint32_t bucket = next_of_step(); bucket != kNone) return bucket;
  while (next_ < 2 * buckets_.size()) {
    const std::uint32_t bucket = buckets_[next_++ - buckets_.size()];
    if (holding(bucket) == nullptr) return bucket;
  }
  return kNone;
}

/// With an open gate buckets are updated in the order of backward: the last first, but for those
/// that overtake.
void Streamed::update_bucket(std::uint32_t bucket, std::byte* overflow_counts) {
  update_in(buffer_of(bucket), overflow_counts);
  fill_ring([&] { return next_before(bucket); });
}

template <class Next>
void Streamed::fill_ring(Next next) {
  for (Buffer& buffer : ring_) {
    if (buffer.bucket != kNone) continue;
    const std::uint32_t bucket = next();
    if (bucket == kNone) return;
    fetch(buffer, bucket);
  }
}

/// With its state in it, or coming. What has to go for that is what an open gate needs last.
Streamed::Buffer& Streamed::buffer_of(std::uint32_t bucket) {
  if (Buffer* buffer = holding(bucket)) return *buffer;
  Buffer* buffer = holding(kNone);
  if (buffer == nullptr) buffer = &*std::ranges::min_element(ring_, {}, &Buffer::bucket);
  fetch(*buffer, bucket);
  return *buffer;
}

std::uint32_t Streamed::next_before(std::uint32_t bucket) {
  const auto at = std::ranges::lower_bound(buckets_, bucket) - buckets_.begin();
  for (auto i = at; i-- > 0;) {
    const std::uint32_t before = buckets_[static_cast<std::size_t>(i)];
    if (!flow_.buckets[before].opened && holding(before) == nullptr) return before;
  }
  for (std::size_t i = buckets_.size(); i-- > 0;) {
    if (holding(buckets_[i]) == nullptr) return buckets_[i];
  }
  return kNone;
}

/// Streams are in order, so what left this buffer earlier has been waited for by the copies into it
/// since.
void Streamed::fetch(Buffer& buffer, std::uint32_t bucket) {
  device::Backend& backend = flow_.backend;
  buffer.bucket = bucket;
  backend.wait_event(in_, buffer.left);
  for (const Buffer& other : ring_) {
    if (&other != &buffer && other.left_bucket == bucket) backend.wait_event(in_, other.left);
  }
  const memory::StateLease state = flow_.lease(bucket);
  for (std::size_t i = 0; i < streams(bucket); ++i) {
    const auto host = state.stream<std::byte>(i);
    backend.copy_to_device(stream_address(buffer, i), host, in_);
    flow_.stats.state_bytes_up += host.size();
    flow_.stats.copies_up += 1;
  }
  backend.record(buffer.here, in_);
}

void Streamed::update_in(Buffer& buffer, std::byte* overflow_counts) {
  const NativeStream stream = flow_.device_update_stream();
  const plan::Bucket& shape = flow_.layout.buckets[buffer.bucket];
  Resident::BucketAddress address{};
  for (std::size_t i = 0; i < streams(buffer.bucket); ++i) {
    address[i] = stream_address(buffer, i);
  }
  flow_.backend.wait_event(stream, buffer.here);
  for (std::uint32_t k = shape.first_segment; k < shape.first_segment + shape.segments; ++k) {
    if (!flow_.segments[k].in_update) continue;
    const plan::Segment& segment = flow_.layout.segments[k];
    resident_.update_segment(segment, resident_.address_in(address, segment), overflow_counts);
  }
  flow_.backend.record(flow_.buckets[buffer.bucket].refreshed, stream);
  flow_.backend.record(updated_, stream);
  send_back(buffer);
}

void Streamed::send_back(Buffer& buffer) {
  device::Backend& backend = flow_.backend;
  backend.wait_event(out_, updated_);
  const memory::StateLease state = flow_.lease(buffer.bucket);
  for (std::size_t i = 0; i < streams(buffer.bucket); ++i) {
    const auto host = state.stream<std::byte>(i);
    backend.copy_to_host(host, stream_address(buffer, i), out_);
    flow_.stats.state_bytes_down += host.size();
    flow_.stats.copies_down += 1;
  }
  backend.record(buffer.left, out_);
  buffer.left_bucket = std::exchange(buffer.bucket, kNone);
}

void Streamed::order_behind_updates(NativeStream stream) {
  flow_.backend.wait_event(stream, updated_);
}

void Streamed::order_behind_copies(NativeStream stream) {
  for (const Buffer& buffer : ring_) {
    if (buffer.here.index == device::Event{}.index) return;
    flow_.backend.wait_event(stream, buffer.here);
    flow_.backend.wait_event(stream, buffer.left);
  }
}

}  // namespace outboard::pipeline
