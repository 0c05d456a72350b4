// SPDX-License-Identifier: Apache-2.0
/// The way across the link for buckets whose slot is not pinned: a few pinned buffers that
/// gradients and weights pass through one after the other.
///
/// With Accumulate::host every gradient comes this way, and is added to its sum as it is drained.
///
/// Never deadlocks: a buffer in use needs only the device and the host's executor to go on, never
/// another buffer. +4 bytes of host traffic per parameter and step, counted as bounce bytes.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "pipeline/flow.hpp"

namespace outboard::pipeline {

/// Told when a gradient has reached its slot, or a weight's upload is queued.
class BounceListener {
 public:
  virtual void gradient_drained(std::uint32_t segment) noexcept = 0;
  virtual void weight_queued(std::uint32_t bucket) noexcept = 0;

 protected:
  ~BounceListener() = default;
};

class BounceRing {
 public:
  BounceRing(Flow& flow, std::span<const memory::SlotView> buffers, BounceListener& listener);
  ~BounceRing();
  BounceRing(const BounceRing&) = delete;
  BounceRing& operator=(const BounceRing&) = delete;
  /// Buckets have come. While nothing is in the ring.
  void fit();
  /// The largest slot that it can serve.
  [[nodiscard]] std::size_t buffer_bytes() const noexcept { return buffers_.front()->bytes.size(); }

  /// Buffers.
  [[nodiscard]] std::size_t slots() const noexcept { return buffers_.size(); }

  struct Gradient {
    std::uint32_t segment = 0;
    bool first = true, last = true;  ///< of the step's micro-batches (Accumulate::host)
  };
  /// Queues the copy of a segment's gradient as soon as a buffer is free; its parameter's `ready`
  /// event is recorded already. At most one request for each segment waits for a buffer.
  void request_gradient(const Gradient& gradient);
  /// Queues the upload of a bucket's refreshed weights as soon as a buffer is free.
  void request_weight(std::uint32_t bucket);
  /// Forgets gradients that have no buffer yet; those on their way are not written to their slots.
  /// `only`: of this parameter; nullopt: all.
  void drop_gradients(std::optional<std::uint32_t> only = {});

 private:
  enum class Cargo : std::uint8_t { none, gradient, weight };
  struct Buffer {
    std::span<std::byte> bytes;
    Cargo cargo = Cargo::none;
    std::uint32_t index = 0;  // segment or bucket
    std::uint32_t parts = 1;  // of the task that drains or fills it
    bool first = true, last = true;
    std::atomic<bool> dropped{false};
    device::Event passed;  // the device is done with the buffer (weights)
  };
  /// First in, first out; holds at most every bucket.
  class Queue {
   public:
    /// Only while it is empty.
    void fit(std::size_t capacity) {
      if (capacity < items_.size()) return;
      items_.resize(capacity + 1);
      head_ = tail_ = 0;
    }
    [[nodiscard]] bool empty() const noexcept { return head_ == tail_; }
    void push(std::uint32_t item) noexcept {
      items_[tail_] = item;
      tail_ = (tail_ + 1) % items_.size();
    }
    std::uint32_t pop() noexcept {
      const std::uint32_t item = items_[head_];
      head_ = (head_ + 1) % items_.size();
      return item;
    }

   private:
    std::vector<std::uint32_t> items_;
    std::size_t head_ = 0, tail_ = 0;
  };

  void destroy() noexcept;
  void pump();
  [[nodiscard]] bool take_eligible(Gradient& gradient);
  void start_gradient(std::uint32_t buffer, const Gradient& gradient);
  void start_weight(std::uint32_t buffer, std::uint32_t bucket);
  void queue_upload(Buffer& buffer, std::uint32_t index);
  void copy_weights(Buffer& buffer) noexcept;
  void release(std::uint32_t buffer);
  void post(std::uint32_t buffer, std::uint64_t elems,
            void (*body)(void*, std::uint64_t, std::uint32_t) noexcept,
            void (*done)(void*, std::uint64_t) noexcept);

  // Without the lock, on a device or executor thread:
  static void gradient_landed(void* self, std::uint64_t buffer) noexcept;
  static void drain(void* self, std::uint64_t buffer, std::uint32_t part) noexcept;
  static void drained(void* self, std::uint64_t buffer) noexcept;
  static void fill(void* self, std::uint64_t buffer, std::uint32_t part) noexcept;
  static void filled(void* self, std::uint64_t buffer) noexcept;
  static void weight_passed(void* self, std::uint64_t buffer) noexcept;
  static void nothing(void* self, std::uint64_t buffer, std::uint32_t part) noexcept;
  static void freed(void* self, std::uint64_t buffer) noexcept;

  Flow& flow_;
  BounceListener& listener_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  std::vector<Gradient> gradients_;  // first in, first out, but for segments still in the ring
  Queue weights_;
};

}  // namespace outboard::pipeline
