// SPDX-License-Identifier: Apache-2.0
/// The short way for device-resident buckets: state in device memory, updated there by the rule's
/// device kernels, gradient and weight used where they are. Updates run on the norm stream, which
/// waits for nothing that the host does: they begin when the gate opens. Under Schedule::open they
/// have a stream of their own, since norms must not wait for readers. Sums of gradients that
/// streamed buckets need on the device are kept here too.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "core/host_layout.hpp"
#include "pipeline/flow.hpp"

namespace outboard::pipeline {

/// What optimizer state may take of the device, and what goes of that to its stream buffers.
struct DeviceRoom {
  std::size_t budget_bytes = 0;
  std::size_t buffer_bytes = 0;        ///< in the end
  std::size_t new_buffer_bytes = 0;    ///< of those, to be allocated
  std::size_t freed_buffer_bytes = 0;  ///< given back first
};

class Resident {
 public:
  /// Allocates nothing yet.
  explicit Resident(Flow& flow);
  ~Resident();
  Resident(const Resident&) = delete;
  Resident& operator=(const Resident&) = delete;

  /// Allocates the state of the buckets that are resident now, each generation's by itself; with
  /// Accumulate::host also the sums of gradients of all that the device updates. Nothing is held
  /// before. @throws Error{out_of_memory} saying how much is missing of the budget or of what is
  /// free; nothing is allocated then.
  void allocate(const DeviceRoom& room);
  /// The same for generations that have come since; what is held stays where it is and counts.
  void allocate_new(const DeviceRoom& room);
  /// Gives back what generations from this one on hold.
  void release_from(std::size_t generation) noexcept;
  /// @throws as allocate() would for these homes, once what is held now is given back.
  void require_room_for(const std::vector<plan::Home>& homes, const DeviceRoom& room) const;
  /// Gives all of it back.
  void release() noexcept { release_from(0); }

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

  /// Device addresses of a segment's state. Null: its rule has none such.
  struct Address {
    std::byte* param = nullptr;
    std::array<void*, optim::kMaxRuleStreams> state{};
    std::byte* ema = nullptr;
  };
  [[nodiscard]] Address address(const plan::Segment& segment) const;
  /// The start of a bucket's state, wherever it is on the device, in each stream of its generation.
  using BucketAddress = std::array<std::byte*, optim::kMaxStreams>;
  [[nodiscard]] Address address_in(const BucketAddress& bucket, const plan::Segment& segment) const;
  /// Queues the update of one segment whose state is there, behind the updates before it.
  void update_segment(const plan::Segment& segment, const Address& state,
                      std::byte* overflow_counts);
  /// The same in stream `index` of its generation, whatever the parameter's rule.
  [[nodiscard]] std::byte* stream_address(const plan::Segment& segment, std::size_t index) const;
  /// Of a whole resident bucket.
  [[nodiscard]] std::byte* bucket_address(std::uint32_t bucket, std::size_t index) const {
    const std::uint32_t first = flow_.generation(bucket).first_bucket;
    const Part& part = parts_[flow_.buckets[bucket].generation];
    return static_cast<std::byte*>(part.streams[index]) + part.layout.offset[bucket - first];
  }
  /// Accumulate::host: device address of the FP32 sum of a parameter that the device updates; null
  /// if the trainer adds up.
  [[nodiscard]] std::byte* sums(std::uint32_t parameter) const noexcept {
    const Part& part = parts_[flow_.parameters[parameter].generation];
    return part.sums == nullptr ? nullptr : part.sums + part.layout.sum_offset[in_part(parameter)];
  }
  /// What one generation holds: a range for each of its streams, sums, norms and trust ratios of
  /// two-phase rules. Empty ranges: nothing of it is resident.
  struct Held {
    std::array<std::span<std::byte>, optim::kMaxStreams> streams;
    std::span<const std::byte> sums, norms;
  };
  [[nodiscard]] Held held(std::size_t generation) const;
  /// What is held now, each allocation rounded up to `align`.
  [[nodiscard]] std::size_t held_bytes(std::size_t align = core::kDeviceAlign) const;
  /// Beside whole buckets' state, were all of them resident: norms, and what is rounded up.
  [[nodiscard]] std::size_t most_overhead_bytes() const;

 private:
  // Of one generation; its buckets and parameters are counted from its first.
  struct Layout {
    std::vector<std::size_t> offset;  // bytes in each stream, by bucket
    std::size_t streams = 0;
    std::size_t stream_bytes = 0;
    std::vector<std::size_t> sum_offset;  // bytes, by parameter
    std::size_t sum_bytes = 0;
    std::vector<std::size_t> trust_offset;  // bytes in `norms`, by parameter
    std::size_t norm_bytes = 0;
    [[nodiscard]] std::size_t bytes(std::size_t align) const;
  };
  struct Part {
    Layout layout;
    std::array<void*, optim::kMaxStreams> streams{};  // as the generation's state layout
    std::byte* sums = nullptr;
    std::byte* norms = nullptr;  // blocks of the largest two-phase parameter, then trust ratios
  };
  [[nodiscard]] std::uint32_t in_part(std::uint32_t parameter) const noexcept {
    const std::uint32_t generation = flow_.parameters[parameter].generation;
    return parameter - flow_.generations[generation].first_parameter;
  }
  [[nodiscard]] Layout lay_out(const Generation& generation,
                               const std::vector<plan::Home>& homes) const;
  void lay_out_sums(const Generation& generation, const std::vector<plan::Home>& homes,
                    Layout& layout) const;
  void lay_out_norms(const Generation& generation, const std::vector<plan::Home>& homes,
                     Layout& layout) const;
  [[nodiscard]] plan::Home home_of(const Parameter& parameter,
                                   const std::vector<plan::Home>& homes) const;
  void require_room(std::span<const Part> parts, std::size_t held_bytes,
                    const DeviceRoom& room) const;
  void allocate(Part& part);
  void release(Part& part) noexcept;
  [[nodiscard]] simd::ConstElements gradient(const plan::Segment& segment) const;
  [[nodiscard]] std::byte* norms(std::uint32_t parameter) const noexcept {
    return parts_[flow_.parameters[parameter].generation].norms;
  }
  [[nodiscard]] std::byte* lr_trust(std::uint32_t parameter) const noexcept;
  [[nodiscard]] NativeStream update_stream() const noexcept { return flow_.device_update_stream(); }

  Flow& flow_;
  device::Event updated_;    // the last update()
  std::vector<Part> parts_;  // by generation
};

}  // namespace outboard::pipeline
