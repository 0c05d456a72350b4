// SPDX-License-Identifier: Apache-2.0
/// Small tensors cross the link together: those that a bucket packs leave as one copy, and come
/// back as one copy and one kernel that spreads them over the trainer's weights.
///
/// A gradient is packed as it is given, into a buffer on the device that its bucket holds from the
/// first one of a step until the copy is queued: with the last one, or in step() if some do not
/// come. While other incomplete buckets hold all buffers a bucket goes without for one step; its
/// gradients are then copied one by one, as are refreshed weights if not all of them take part in
/// an update. So nobody waits for a buffer but the device, for copies that are queued already.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "core/pack_layout.hpp"
#include "pipeline/flow.hpp"

namespace outboard::pipeline {

/// Only buckets whose slot is direct pack, while the device does not update them. One for the
/// buckets of each generation.
class Packing {
 public:
  /// Allocates nothing yet.
  Packing(Flow& flow, std::uint32_t first_bucket, std::uint32_t end_bucket);
  /// Nothing may run any more that uses its memory.
  ~Packing();
  /// Buffers and tables for the buckets that pack. @throws Error{out_of_memory}.
  void allocate();
  /// Fills the tables with where the weights lie; blocks until they are on the device.
  void load_tables(std::unique_lock<std::mutex>& lock);
  Packing(const Packing&) = delete;
  Packing& operator=(const Packing&) = delete;

  // --- gradients ---
  /// Queues the kernel that packs the parameter's gradient and leaves its norm in `scalars`, and
  /// records `reduced` behind it. False: nothing has been queued, it is copied by itself.
  [[nodiscard]] bool pack(std::uint32_t parameter, void* scalars);
  /// Whether some gradients of the bucket are packed whose copy is not queued; all of them.
  [[nodiscard]] bool begun(std::uint32_t bucket) const { return group(bucket).packed > 0; }
  [[nodiscard]] bool complete(std::uint32_t bucket) const {
    return group(bucket).packed == flow_.layout.buckets[bucket].packed_segments;
  }
  /// Queues the one copy of a bucket that has begun. @return the event that it ends with.
  device::Event queue_copy(std::uint32_t bucket);
  /// The step ends: forgets gradients whose copy is not queued.
  void end_step() noexcept;

  // --- weights ---
  /// Whether all of the bucket's packed parameters take part in its update.
  [[nodiscard]] bool takes_all(std::uint32_t bucket) const;
  /// Queues the copy of the packed weights behind what the up stream holds, and the kernel that
  /// spreads them. Records the bucket's `refreshed`.
  void queue_weights(std::uint32_t bucket);
  /// Makes `stream` wait for all kernels that spread weights.
  void order_behind_unpacking(NativeStream stream);

  // --- what it holds ---
  /// Device memory: buffers, and tables.
  [[nodiscard]] std::array<std::span<const std::byte>, 2> held() const noexcept {
    return {{{buffers_, need_.bytes()}, {tables_, need_.table_bytes()}}};
  }

 private:
  struct Buffer {
    std::byte* memory = nullptr;
    bool held = false;      // by a bucket that has begun
    device::Event filled;   // weights: copied to the device
    device::Event emptied;  // gradients: copied to the host; weights: spread
  };
  struct Group {
    std::uint32_t packed = 0;        // gradients of this step, none of which has left
    std::size_t buffer = 0;          // if there are any
    std::uint32_t last = 0;          // parameter packed last
    bool alone = false;              // goes without a buffer in this step
    std::uint64_t from = 0, to = 0;  // elements that hold gradients
    std::uint64_t first_entry = 0;   // in the tables
  };

  [[nodiscard]] const Group& group(std::uint32_t bucket) const {
    return groups_[bucket - first_bucket_];
  }
  [[nodiscard]] Group& group(std::uint32_t bucket) { return groups_[bucket - first_bucket_]; }
  void cut_buffers(std::size_t from, std::vector<Buffer>& out);
  [[nodiscard]] bool take_buffer(Group& group);

  Flow& flow_;
  std::uint32_t first_bucket_;
  core::PackNeed need_;
  std::byte* buffers_ = nullptr;
  std::byte* tables_ = nullptr;
  std::vector<Buffer> gradients_;
  std::vector<Buffer> weights_;
  std::size_t next_gradients_ = 0;  // in gradients_, which are used in turn
  std::size_t next_weights_ = 0;
  std::vector<Group> groups_;                // by bucket
  std::vector<device::PackedWeight> table_;  // on its way to the device
  device::Event loaded_;
};

}  // namespace outboard::pipeline
