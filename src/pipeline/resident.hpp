// SPDX-License-Identifier: Apache-2.0
/// The short way for device-resident buckets: state in device memory, updated there by the rule's
/// device kernel, gradient and weight used where they are.
#pragma once

#include <array>
#include <cstdint>

#include "pipeline/flow.hpp"

namespace outboard::pipeline {

class Resident {
 public:
  /// Allocates the state. @throws Error{out_of_memory} saying how much is missing.
  explicit Resident(Flow& flow);
  ~Resident();
  Resident(const Resident&) = delete;
  Resident& operator=(const Resident&) = delete;

  /// Queues the update of every parameter that is `in_update`, behind the work that the up stream
  /// waits for. `overflow_counts`: device memory of one std::uint64_t for each parameter.
  void update(void* overflow_counts);

  /// Device addresses of a segment's state, for reading and loading it.
  struct Address {
    std::byte *param, *exp_avg, *exp_avg_sq;
  };
  [[nodiscard]] Address address(const plan::Segment& segment) const;
  [[nodiscard]] std::size_t stream_bytes() const noexcept { return stream_bytes_; }
  [[nodiscard]] const void* stream(std::size_t index) const noexcept { return streams_[index]; }

 private:
  void release() noexcept;
  void update_bucket(std::uint32_t bucket, std::byte* overflow_counts);

  Flow& flow_;
  std::size_t stream_bytes_ = 0;
  std::array<void*, 3> streams_{};  // master weight, exp_avg, exp_avg_sq
};

}  // namespace outboard::pipeline
