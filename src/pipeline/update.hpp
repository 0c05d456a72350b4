// SPDX-License-Identifier: Apache-2.0
/// Second stage: FP32 AdamW on the bucket's node, in the order in which the next forward uses the
/// buckets. Nothing waits for a bucket that has not arrived; of those that have, the earliest goes
/// first.
#pragma once

#include <cstdint>
#include <vector>

#include "pipeline/gradient_out.hpp"
#include "pipeline/ticket.hpp"

namespace outboard::pipeline {

class UpdateListener {
 public:
  /// With the lock held, on an executor thread: the slot holds the refreshed weights.
  virtual void bucket_updated(Ticket ticket) noexcept = 0;

 protected:
  ~UpdateListener() = default;
};

class Update final : public ArrivalListener {
 public:
  Update(Flow& flow, UpdateListener& listener);

  /// Opens the gate for a bucket some of whose parameters are `in_update`.
  void open(std::uint32_t bucket);
  void segment_arrived(std::uint32_t segment) noexcept override;

 private:
  void post(std::uint32_t bucket) noexcept;
  void update_part(std::uint32_t bucket, std::uint32_t part) noexcept;
  // Without the lock, on an executor thread:
  static void body(void* self, std::uint64_t bucket, std::uint32_t part) noexcept;
  static void done(void* self, std::uint64_t bucket) noexcept;

  struct Running {
    Ticket ticket;
    std::uint64_t part_elems = 0;
  };
  Flow& flow_;
  UpdateListener& listener_;
  std::vector<Running> running_;  // by bucket
};

}  // namespace outboard::pipeline
