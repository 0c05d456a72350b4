// SPDX-License-Identifier: Apache-2.0
/// The state as it is at one moment, given out piece by piece while training goes on: for a save
/// that nobody waits for.
///
/// What is read straight from where it lies is read before an update changes it, or is copied
/// before into a buffer of fixed size. An update whose bucket finds no room there waits until the
/// reader has been past it, or has made room: so the reader never waits for an update, and never
/// gets a byte of a later step.
///
/// One reader, which takes parameter after parameter, each one's streams in turn.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "pipeline/flow.hpp"
#include "pipeline/resident.hpp"

namespace outboard::pipeline {

class SnapshotListener {
 public:
  /// With the lock held, on any thread: the bucket's update, which was held back, may begin.
  virtual void bucket_secured(std::uint32_t bucket) noexcept = 0;

 protected:
  ~SnapshotListener() = default;
};

class Snapshot {
 public:
  Snapshot(Flow& flow, Resident& resident, SnapshotListener& listener);
  ~Snapshot();
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;

  struct Start {
    std::size_t buffer_bytes = 0;     ///< at most; allocated by the first begin()
    std::uint64_t digest = 0;         ///< of all but the host's elements
    std::function<void()> can_go_on;  ///< take() gives more than Outcome::later; with the lock
    std::function<bool(std::uint32_t)> is_updating;  ///< host buckets of the last step, now
  };
  /// From now on take() gives this moment's state. No gradient is pending; what the device updates
  /// is idle. @throws Error{out_of_memory}.
  void begin(std::unique_lock<std::mutex>& lock, Start start);
  /// Nobody reads any more: what waits goes on. Does nothing where nothing began.
  void end() noexcept;
  [[nodiscard]] bool active() const noexcept { return active_; }

  // --- the reader's, without the lock ---
  enum class Outcome : std::uint8_t {
    piece,
    later,  ///< `can_go_on` will be called
    end,    ///< all was given
  };
  struct Taken {
    Outcome outcome = Outcome::end;
    std::size_t bytes = 0;
  };
  /// Fills `buffer` with the next bytes of one stream, as far as it goes on.
  /// @throws Error{poisoned} if what is next will never be there.
  Taken take(std::span<std::byte> buffer);
  /// After the last piece: as Engine::state_digest() was at begin().
  [[nodiscard]] std::uint64_t digest() const noexcept { return digest_; }

  // --- the steps' ---
  /// A host bucket is about to be updated. @return false: bucket_secured() will say when.
  [[nodiscard]] bool secure(std::uint32_t bucket) noexcept;
  /// Its update has ended.
  void bucket_updated(std::uint32_t bucket) noexcept;
  /// Before any bucket is updated by the device: waits until all of those are copied or given out.
  void secure_device_buckets(std::unique_lock<std::mutex>& lock);

  [[nodiscard]] std::span<const std::byte> held() const noexcept {
    return {buffer_.get(), buffer_bytes_};
  }

 private:
  /// Of the buffer. Small beside a bucket, so that little is wasted, and large beside what handing
  /// out one costs.
  static constexpr std::size_t kChunkBytes = std::size_t{64} << 10;
  /// One stream of a segment.
  struct Item {
    std::uint32_t segment = 0;
    std::uint32_t bucket = 0;
    std::size_t stream = 0;  // of its generation
    std::uint64_t bytes = 0;
    std::uint64_t place = 0;  // among the bytes of the bucket's items, in the reader's order
  };
  enum class Held : std::uint8_t { no, for_room, for_copy, for_reader };
  struct Bucket {
    std::vector<std::uint32_t> items;   // in the reader's order
    std::uint64_t bytes = 0;            // of them
    std::uint64_t given = 0;            // of those
    std::uint64_t copied_from = 0;      // copied: from there on
    std::vector<std::uint32_t> chunks;  // of the copy, in order; room for all it may have
    std::size_t freed = 0;              // of those
    std::uint64_t part_bytes = 0;       // of the copy, for each thread
    bool ready = false;                 // its state is this moment's
    bool copied = false;                // what is not given out yet
    bool reading = false;               // the reader reads where the state lies
    bool summed = false;                // its digest is in the sum
    Held held = Held::no;               // back, its update
  };

  [[nodiscard]] std::string describe() const;  ///< for the deadlock report
  void allocate(std::size_t bytes);
  [[nodiscard]] static std::size_t chunk_count(std::uint64_t bytes) noexcept {
    return static_cast<std::size_t>((bytes + kChunkBytes - 1) / kChunkBytes);
  }
  void open_way_down();
  void list_items();
  [[nodiscard]] std::size_t chunks_of(const Bucket& bucket) const noexcept;
  [[nodiscard]] bool has_room(const Bucket& bucket) const noexcept;
  void reserve(Bucket& bucket) noexcept;
  void post_copy(std::uint32_t bucket) noexcept;
  void try_secure(std::uint32_t bucket) noexcept;
  void try_held() noexcept;
  void hold(Bucket& bucket, Held why) noexcept;
  void let_go(std::uint32_t bucket) noexcept;
  void copy_from_device(std::unique_lock<std::mutex>& lock, std::uint32_t bucket);

  Taken take_from_arena(std::unique_lock<std::mutex>& lock, std::span<std::byte> out);
  Taken take_from_copy(std::unique_lock<std::mutex>& lock, std::span<std::byte> out);
  Taken take_from_device(std::span<std::byte> out);
  void given(std::size_t bytes) noexcept;
  void free_given(Bucket& bucket) noexcept;
  void require_sound();

  /// Calls use(item, offset in it, its place in the copy) for the bucket's bytes in [from, to), as
  /// far as each lies in a row.
  template <class Use>
  void for_each_run(const Bucket& bucket, std::uint64_t from, std::uint64_t to, Use use) const;
  [[nodiscard]] std::span<const std::byte> arena(const Item& item) const;
  [[nodiscard]] std::uint64_t digest_of_arena(std::uint32_t bucket) const;
  [[nodiscard]] std::uint64_t digest_of_copy(std::uint32_t bucket) const;
  template <class Streams>
  [[nodiscard]] std::uint64_t digest_of(std::uint32_t bucket, Streams streams) const;

  static void copy_body(void* self, std::uint64_t bucket, std::uint32_t part) noexcept;
  static void copy_done(void* self, std::uint64_t bucket) noexcept;
  static void piece_landed(void* self, std::uint64_t) noexcept;

  Flow& flow_;
  Resident& resident_;
  SnapshotListener& listener_;
  std::optional<std::uint64_t> reporter_;
  bool active_ = false;
  std::function<void()> can_go_on_;
  std::uint64_t digest_ = 0;
  std::vector<Item> items_;
  std::vector<Bucket> buckets_;
  std::size_t item_ = 0;       // the reader's
  std::uint64_t at_ = 0;       // bytes of it that were given
  std::uint32_t copying_ = 0;  // buckets
  std::uint32_t held_ = 0;     // buckets for room or for the reader
  std::int64_t held_since_ns_ = 0;

  std::unique_ptr<std::byte[]> buffer_;
  std::size_t buffer_bytes_ = 0;
  std::vector<std::uint32_t> free_chunks_;

  NativeStream down_;  // resident state
  device::Event landed_;
  enum class Piece : std::uint8_t { none, on_its_way, here } piece_ = Piece::none;
  std::vector<std::byte> landing_;
  std::size_t landing_bytes_ = 0;
};

template <class Use>
void Snapshot::for_each_run(const Bucket& bucket, std::uint64_t from, std::uint64_t to,
                            Use use) const {
  const auto begins_behind = [&](std::uint32_t item) { return items_[item].place <= from; };
  auto next = std::ranges::partition_point(bucket.items, begins_behind);
  while (from < to) {
    const Item& item = items_[*std::prev(next)];
    const std::uint64_t in_copy = from - bucket.copied_from;
    const std::uint64_t in_chunk = in_copy % kChunkBytes;
    const std::uint64_t bytes =
        std::min({to - from, item.place + item.bytes - from, kChunkBytes - in_chunk});
    std::byte* chunk = buffer_.get() + bucket.chunks[in_copy / kChunkBytes] * kChunkBytes;
    use(item, from - item.place, std::span(chunk + in_chunk, bytes));
    from += bytes;
    if (from == item.place + item.bytes && next != bucket.items.end()) ++next;
  }
}

}  // namespace outboard::pipeline
