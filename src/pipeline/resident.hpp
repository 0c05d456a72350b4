// SPDX-License-Identifier: Apache-2.0
/// The short way for device-resident buckets: state in device memory, updated there by the rule's
/// device kernels, gradient and weight used where they are. Updates run on the norm stream, which
/// waits for nothing that the host does: they begin when the gate opens. Under Schedule::open they
/// have a stream of their own, since norms must not wait for readers.
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
  /// @throws as allocate() would for these buckets, once what is held now is given back.
  void require_room_for(const std::vector<bool>& resident, std::size_t budget_bytes) const;
  /// Gives all of it back.
  void release() noexcept;

  /// Queues the update of every resident part of parameters that are `in_update`, behind the work
  /// that the norm stream waits for. `overflow_counts`: device memory of one std::uint64_t for each
  /// parameter.
  void update(void* overflow_counts);
  // Single steps of it, on the stream of resident updates, for an open gate:
  /// First phase of a parameter whose rule has two: new moments and the trust ratio.
  void measure(std::uint32_t parameter);
  /// Segments of the bucket that are `in_update`.
  void update_bucket(std::uint32_t bucket, std::byte* overflow_counts);
  /// Makes `stream` wait for the last update() or update_bucket().
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
  /// Of a whole resident bucket.
  [[nodiscard]] std::byte* bucket_address(std::uint32_t bucket, std::size_t index) const {
    return static_cast<std::byte*>(streams_[index]) + layout_.offset[bucket];
  }
  /// Accumulate::host: device address of a resident parameter's FP32 sum; null if the trainer adds
  /// up.
  [[nodiscard]] std::byte* sums(std::uint32_t parameter) const noexcept {
    return sums_ == nullptr ? nullptr : sums_ + layout_.sum_offset[parameter];
  }
  [[nodiscard]] const void* sums() const noexcept { return sums_; }
  [[nodiscard]] std::size_t sum_bytes() const noexcept { return layout_.sum_bytes; }
  [[nodiscard]] std::size_t stream_bytes() const noexcept { return layout_.stream_bytes; }
  [[nodiscard]] void* stream(std::size_t index) const noexcept { return streams_[index]; }
  /// What is held now, each allocation rounded up.
  [[nodiscard]] std::size_t held_bytes() const;
  /// Beside whole buckets' state, were all of them resident: norms, and what is rounded up.
  [[nodiscard]] std::size_t most_overhead_bytes() const;
  /// Norms and trust ratios of two-phase rules.
  [[nodiscard]] std::size_t norm_bytes() const noexcept { return layout_.norm_bytes; }
  [[nodiscard]] const void* norms() const noexcept { return norms_; }

 private:
  struct Layout {
    std::vector<std::size_t> offset;  // bytes in each stream, by bucket
    std::size_t stream_bytes = 0;
    std::vector<std::size_t> sum_offset;  // bytes, by parameter
    std::size_t sum_bytes = 0;
    std::vector<std::size_t> trust_offset;  // bytes in `norms_`, by parameter
    std::size_t norm_bytes = 0;
  };
  [[nodiscard]] Layout lay_out(const std::vector<bool>& resident) const;
  void lay_out_sums(const std::vector<bool>& resident, Layout& layout) const;
  void lay_out_norms(const std::vector<bool>& resident, Layout& layout) const;
  [[nodiscard]] bool is_resident(const Parameter& parameter,
                                 const std::vector<bool>& resident) const;
  [[nodiscard]] std::size_t needed_bytes(const Layout& layout, std::size_t align) const;
  void require_room(const Layout& layout, std::size_t budget_bytes) const;
  [[nodiscard]] simd::ConstElements gradient(const plan::Segment& segment) const;
  [[nodiscard]] std::byte* lr_trust(std::uint32_t parameter) const noexcept;
  [[nodiscard]] NativeStream update_stream() const noexcept {
    return flow_.open_gate() ? flow_.resident_updates : flow_.norm;
  }
  void update_segment(const plan::Segment& segment, std::byte* overflow_counts);

  Flow& flow_;
  device::Event updated_;  // the last update()
  Layout layout_;
  std::byte* sums_ = nullptr;
  std::byte* norms_ = nullptr;  // blocks of the largest two-phase parameter, then trust ratios
  std::array<void*, optim::kMaxStreams> streams_{};  // as the engine's state layout
};

}  // namespace outboard::pipeline
