// SPDX-License-Identifier: Apache-2.0
/// First stage: gradients leave the device. Queues the norm kernel and the copies behind the
/// caller's stream, and reports each segment that has arrived in its slot.
#pragma once

#include <cstdint>

#include "pipeline/bounce_ring.hpp"
#include "pipeline/flow.hpp"
#include "pipeline/packing.hpp"
#include "pipeline/resident.hpp"

namespace outboard::pipeline {

class ArrivalListener {
 public:
  /// With the lock held, on a device or executor thread: the gradient that the running update
  /// needs, if one is, has landed.
  virtual void segment_arrived(std::uint32_t segment) noexcept = 0;

 protected:
  ~ArrivalListener() = default;
};

class GradientOut {
 public:
  /// `scalars`: device memory of one GradientScalars for each parameter.
  GradientOut(Flow& flow, void* scalars, ArrivalListener& listener)
      : flow_(flow), scalars_(static_cast<std::byte*>(scalars)), listener_(listener) {}
  /// Accumulate::host: where the sums on the device are.
  void set_resident(Resident* resident) noexcept { resident_ = resident; }
  /// Queues the norm of a sum on the device that got fewer micro-batches than it could.
  void queue_norm_of_sum(std::uint32_t parameter);
  /// The scalars lie elsewhere now. Between steps.
  void set_scalars(void* scalars) noexcept { scalars_ = static_cast<std::byte*>(scalars); }

  /// Orders the engine behind `stream`, queues norm and copies. Returns at once. With
  /// Accumulate::host no copy of the micro-batch before may still wait for the ring.
  void take(std::uint32_t parameter, const void* gradient, NativeStream stream);
  /// Makes `stream` wait until the gradient given last has been read. Blocks while copies still
  /// wait for the ring.
  void wait_taken(std::unique_lock<std::mutex>& lock, std::uint32_t parameter, NativeStream stream);
  /// No more gradients come in this step: what is packed leaves. With an open gate it waits until
  /// no update of the step before uses the slot: a range may hold tensors of which it brings none.
  void finish(std::unique_lock<std::mutex>& lock);
  /// The gradients given since the last step() will not be used.
  void drop();
  /// A copy through the ring has ended.
  void segment_landed(std::uint32_t segment) noexcept;

 private:
  void queue_sum(const Parameter& parameter, std::uint32_t index);
  void queue_norm(const Parameter& parameter, std::uint32_t index);
  void queue_copy(std::uint32_t segment);
  [[nodiscard]] bool take_packed(std::uint32_t parameter);
  void send_packed(std::uint32_t bucket);
  template <class Use>
  void for_each_packed(std::uint32_t bucket, Use use);
  static void copy_landed(void* self, std::uint64_t segment) noexcept;
  static void packed_landed(void* self, std::uint64_t bucket) noexcept;

  Flow& flow_;
  std::byte* scalars_;
  ArrivalListener& listener_;
  Resident* resident_ = nullptr;
};

}  // namespace outboard::pipeline
