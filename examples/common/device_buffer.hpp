// SPDX-License-Identifier: Apache-2.0
/// An owner of device memory.
#pragma once

#include <cstddef>
#include <optional>

#include "outboard/sim.hpp"

namespace example {

/// Owns one allocation of device memory. Empty by default.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  /// @throws outboard::Error{out_of_memory} naming asked, used and limit.
  DeviceBuffer(outboard::sim::Gpu gpu, std::size_t bytes);
  /// Gives the memory back; no queued work may use it any more.
  ~DeviceBuffer();
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;

  [[nodiscard]] void* address() const noexcept { return address_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

 private:
  std::optional<outboard::sim::Gpu> gpu_;
  void* address_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace example
