// SPDX-License-Identifier: Apache-2.0
/// How much device memory small tensors take on their common way across the link: what the engine
/// allocates, and a plan of it counts.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/round_up.hpp"

namespace outboard::core {

/// Parameters of fewer bytes are packed.
inline constexpr std::size_t kPackBelowBytes = std::size_t{64} << 10;
/// Buckets whose gradients are being packed or are on their way to the host. Backward fills one and
/// begins the next before it; the others wait for the link. More norms than that may be late.
inline constexpr std::size_t kPackBuffers = 8;
/// Buckets whose weights are on their way to the device, or being unpacked there.
inline constexpr std::size_t kUnpackBuffers = 2;
/// Of each packed parameter: its weight's address, offset and size.
inline constexpr std::size_t kUnpackEntryBytes = 24;

/// Grows with every bucket that packs.
struct PackNeed {
  std::size_t buckets = 0;
  std::size_t largest_bytes = 0;
  std::size_t parameters = 0;

  void add(std::uint32_t packed_parameters, std::size_t bytes) noexcept {
    if (packed_parameters == 0) return;
    buckets += 1;
    parameters += packed_parameters;
    largest_bytes = std::max(largest_bytes, bytes);
  }
  [[nodiscard]] std::size_t buffer_bytes() const noexcept {
    return round_up(largest_bytes, std::size_t{256});
  }
  [[nodiscard]] std::size_t pack_buffers() const noexcept {
    return std::min(buckets, kPackBuffers);
  }
  [[nodiscard]] std::size_t unpack_buffers() const noexcept {
    return std::min(buckets, kUnpackBuffers);
  }
  /// Of all buffers.
  [[nodiscard]] std::size_t bytes() const noexcept {
    return (pack_buffers() + unpack_buffers()) * buffer_bytes();
  }
  [[nodiscard]] std::size_t table_bytes() const noexcept { return parameters * kUnpackEntryBytes; }
};

}  // namespace outboard::core
