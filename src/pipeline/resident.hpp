// SPDX-License-Identifier: Apache-2.0
/// The short way for device-resident buckets: state in device memory, updated there by the rule's
/// device kernels, gradient and weight used where they are. Updates run on the norm stream, which
/// waits for nothing that the host does: they begin when the gate opens.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "pipeline/flow.hpp"

namespace outboard::pipeline {

class Resident {
 public:
  /// Allocates nothing yet.
  explicit Resident(Flow& flow);
  ~Resident();
  Resident(const Resident&) = delete;
  Resident& operator=(const Resident&) = delete;

  /// Allocates the state of the buckets that are resident now, with Accumulate::host also their
  /// parameters' sums of gradients. @throws Error{out_of_memory} saying how much is missing of
  /// `budget_bytes` or of what is free; nothing is allocated then.
  void allocate(std::size_t budget_bytes);

  /// Queues the update of every resident part of parameters that are `in_update`, behind the work
  /// that the norm stream waits for. `overflow_counts`: device memory of one std::uint64_t for each
  /// parameter.
  void update(void* overflow_counts);
  /// Makes `stream` wait for the last update().
  void order_behind_updates(NativeStream stream);

  /// Device addresses of a resident segment's state, for reading and loading it. Null: its rule has
  /// none such.
  struct Address {
    std::byte* param = nullptr;
    std::array<void*, optim::kMaxRuleStreams> state{};
    std::byte* ema = nullptr;
  };
  [[nodiscard]] Address address(const plan::Segment& segment) const;
  /// The same in the engine's stream `index`, whatever the parameter's rule.
  [[nodiscard]] std::byte* stream_address(const plan::Segment& segment, std::size_t index) const;
  /// Accumulate::host: device address of a resident parameter's FP32 sum; null if the trainer adds
  /// up.
  [[nodiscard]] std::byte* sums(std::uint32_t parameter) const noexcept {
    return sums_ == nullptr ? nullptr : sums_ + sum_offset_[parameter];
  }
  [[nodiscard]] const void* sums() const noexcept { return sums_; }
  [[nodiscard]] std::size_t sum_bytes() const noexcept { return sum_bytes_; }
  [[nodiscard]] std::size_t stream_bytes() const noexcept { return stream_bytes_; }
  [[nodiscard]] void* stream(std::size_t index) const noexcept { return streams_[index]; }
  /// Norms and trust ratios of two-phase rules.
  [[nodiscard]] std::size_t norm_bytes() const noexcept { return norm_bytes_; }
  [[nodiscard]] const void* norms() const noexcept { return norms_; }

 private:
  void lay_out();
  [[nodiscard]] std::size_t needed_bytes(std::size_t align) const;
  void require_room(std::size_t budget_bytes) const;
  void lay_out_sums();
  void lay_out_norms();
  void release() noexcept;
  [[nodiscard]] simd::ConstElements gradient(const plan::Segment& segment) const;
  [[nodiscard]] std::byte* lr_trust(std::uint32_t parameter) const noexcept;
  void measure(std::uint32_t parameter);
  void update_bucket(std::uint32_t bucket, std::byte* overflow_counts);
  void update_segment(const plan::Segment& segment, std::byte* overflow_counts);

  Flow& flow_;
  device::Event updated_;            // the last update()
  std::vector<std::size_t> offset_;  // bytes in each stream, by bucket
  std::size_t stream_bytes_ = 0;
  std::vector<std::size_t> sum_offset_;  // bytes, by parameter
  std::size_t sum_bytes_ = 0;
  std::byte* sums_ = nullptr;
  std::vector<std::size_t> trust_offset_;  // bytes in `norms_`, by parameter
  std::size_t norm_bytes_ = 0;
  std::byte* norms_ = nullptr;  // blocks of the largest two-phase parameter, then trust ratios
  std::array<void*, optim::kMaxStreams> streams_{};  // as the engine's state layout
};

}  // namespace outboard::pipeline
