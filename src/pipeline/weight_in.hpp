// SPDX-License-Identifier: Apache-2.0
/// Third stage: refreshed 16-bit weights go back to the device, behind the caller's readers.
#pragma once

#include <cstdint>

#include "pipeline/bounce_ring.hpp"
#include "pipeline/flow.hpp"
#include "pipeline/packing.hpp"
#include "pipeline/ticket.hpp"

namespace outboard::pipeline {

class WeightIn {
 public:
  explicit WeightIn(Flow& flow) : flow_(flow) {}

  /// Queues the bucket's upload now, behind its flag (FlowOptions::uploads_ahead).
  void queue_ahead(std::uint32_t bucket);
  /// The bucket's weights are ready: raises the flag, or queues the upload.
  void start(Ticket ticket) noexcept;
  /// As start(), for a ticket that is gone: serial uploads follow all updates.
  void start(std::uint32_t bucket) noexcept;
  /// The upload of a bucket is queued.
  void finish(std::uint32_t bucket) noexcept;
  /// Makes `stream` wait for the last refresh of the parameter. Blocks until its uploads are
  /// queued.
  void wait_refreshed(std::unique_lock<std::mutex>& lock, std::uint32_t parameter,
                      NativeStream stream);

 private:
  void queue_copies(std::uint32_t bucket);

  Flow& flow_;
};

}  // namespace outboard::pipeline
