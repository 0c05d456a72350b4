// SPDX-License-Identifier: Apache-2.0
/// What a step costs on a machine: rates, the trainer's own times, room on the device. Plain
/// values; nothing here measures.
#pragma once

#include <cstdint>
#include <vector>

#include "core/host_layout.hpp"

namespace outboard::plan {

/// Speeds of one machine. 0 means instant, as for the software GPU.
struct Rates {
  double link_down_bytes_per_s = 0.0;    ///< device to host, while the other direction is busy too
  double link_up_bytes_per_s = 0.0;      ///< host to device, likewise
  std::vector<double> node_elems_per_s;  ///< elements updated per second, one entry for each node
  double device_elems_per_s = 0.0;       ///< elements updated per second on the device
  double norm_elems_per_s = 0.0;         ///< elements whose squares the device adds up per second
  /// Accumulate::host: 16-bit gradients that each node adds to their sums per second. Empty:
  /// kSumsPerUpdate times what it updates.
  std::vector<double> node_sums_per_s{};
  double device_sums_per_s = 0.0;  ///< likewise, on the device
  double copy_us = 0.0;            ///< fixed cost of one copy across the link
  double kernel_us = 0.0;          ///< fixed cost of one kernel of the engine
};

inline constexpr std::uint32_t kNoParameter = UINT32_MAX;

/// A piece of the trainer's own work on the device.
struct ComputePiece {
  double us = 0.0;
  std::uint32_t parameter = kNoParameter;  ///< index into ModelLayout::parameters
};

/// The trainer's work in the order in which it runs. One parameter may occur several times: a tied
/// embedding is first and last in `forward`, and only its last piece of `backward` completes its
/// gradient.
struct StepTimes {
  std::vector<ComputePiece> forward;   ///< each starts when its parameter is refreshed
  std::vector<ComputePiece> backward;  ///< a parameter's gradient is complete with its last piece
  /// Accumulate::host: so many times forward and backward are one step, and each backward's
  /// gradients are added to FP32 sums. 0: the trainer adds up, or there is nothing to add.
  std::uint32_t micro_batches = 0;
  /// Accumulate::host: gradients on their way to the host's sums at one time.
  std::uint32_t ring_slots = core::kGradientRingSlots;
};

/// Bytes that an update of AdamW moves for one element with a 16-bit gradient and weight, and what
/// the addition of such a gradient to a sum does.
inline constexpr std::uint64_t kUpdateBytesPerElem = 28;
inline constexpr std::uint64_t kSumBytesPerElem = 10;
/// Additions in the time of an update, where nobody has measured them: it is their bytes.
inline constexpr double kSumsPerUpdate = 3.0;

/// FP32 master and two moments: AdamW and Adam.
inline constexpr std::uint64_t kStateBytesPerElem = 12;

/// Room on the device for optimizer state and its buffers.
struct DeviceMemory {
  std::uint64_t budget_bytes = 0;
  std::uint64_t state_bytes_per_elem = kStateBytesPerElem;  ///< what one resident element takes
};

/// Buckets whose state is on the device at one time, of those that are streamed through it.
inline constexpr std::uint32_t kStreamBuffers = 2;
/// What the gate copies to the host for one parameter; where the device has state, a count of
/// overflowed weights more.
inline constexpr std::uint64_t kGateBytesPerParameter = 24;
inline constexpr std::uint64_t kOverflowCountBytes = 8;

/// What `amount` takes at `per_s`, in microseconds; 0 if the rate is 0.
[[nodiscard]] constexpr double duration_us(double amount, double per_s) noexcept {
  return per_s > 0.0 ? amount * 1e6 / per_s : 0.0;
}

/// How a gradient gets into a sum on the device.
struct DeviceSum {
  std::uint64_t elems = 0;
  std::uint64_t gradient_bytes = 0;
  std::uint32_t parameters = 0;  ///< each takes a kernel
  bool first = false;            ///< nothing is read of the sum
  bool last = false;             ///< its norm is taken too
};
[[nodiscard]] constexpr double device_sum_us(const Rates& rates, const DeviceSum& sum) noexcept {
  constexpr double kNormBytesPerElem = 2.0;  // of 16-bit elements
  const double sum_bytes = static_cast<double>(sum.elems) * sizeof(float);
  const double touched =
      static_cast<double>(sum.gradient_bytes) + sum_bytes * (sum.first ? 1.0 : 2.0);
  return sum.parameters * rates.kernel_us * (sum.last ? 2.0 : 1.0) +
         duration_us(touched / kSumBytesPerElem, rates.device_sums_per_s) +
         (sum.last ? duration_us(sum_bytes / kNormBytesPerElem, rates.norm_elems_per_s) : 0.0);
}

}  // namespace outboard::plan
