// SPDX-License-Identifier: Apache-2.0
/// The few numbers of each parameter that the device leaves for the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

#include "device/backend.hpp"
#include "memory/pinned_region.hpp"

namespace outboard::pipeline {

/// One table in device memory, and one like it in host memory, pinned if the device allows:
/// on the node that the device is attached to: GradientScalars of each parameter, then the count of
/// its weights that overflowed while resident, then the sum of a digest. Move-only.
class ScalarTable {
 public:
  ScalarTable() = default;
  /// The host's is zero. `backend` must outlive the table.
  /// @throws Error{out_of_memory}; Error{device_failure}.
  ScalarTable(device::Backend& backend, const topology::Machine& machine, std::size_t parameters)
      : parameters_(parameters),
        host_(backend, memory::NumaArena(machine, memory::node_beside(backend, machine), bytes(),
                                         "gate scalars")),
        backend_(&backend),
        device_(static_cast<std::byte*>(backend.allocate(bytes()))) {
    std::memset(host_.bytes().data(), 0, bytes());
  }
  ~ScalarTable() {
    if (device_ != nullptr) backend_->release(device_);
  }
  ScalarTable(ScalarTable&& other) noexcept { swap(other); }
  ScalarTable& operator=(ScalarTable&& other) noexcept {
    ScalarTable taken(std::move(other));
    swap(taken);
    return *this;
  }

  [[nodiscard]] std::size_t bytes() const noexcept {
    return digest_offset() + sizeof(std::uint64_t);
  }
  [[nodiscard]] const memory::PinnedRegion& region() const noexcept { return host_; }
  [[nodiscard]] std::byte* device() const noexcept { return device_; }
  [[nodiscard]] std::byte* device_counts() const noexcept { return device_ + counts_offset(); }
  [[nodiscard]] std::byte* device_sum() const noexcept { return device_ + digest_offset(); }
  /// Scalars and counts.
  [[nodiscard]] std::span<std::byte> host() const noexcept {
    return host_.bytes().first(digest_offset());
  }
  [[nodiscard]] std::span<std::byte> host_counts() const noexcept {
    return host().subspan(counts_offset());
  }
  [[nodiscard]] std::span<std::byte> host_sum() const noexcept {
    return host_.bytes().subspan(digest_offset(), sizeof(std::uint64_t));
  }

 private:
  [[nodiscard]] std::size_t counts_offset() const noexcept {
    return parameters_ * sizeof(device::GradientScalars);
  }
  [[nodiscard]] std::size_t digest_offset() const noexcept {
    return counts_offset() + parameters_ * sizeof(std::uint64_t);
  }
  void swap(ScalarTable& other) noexcept {
    std::swap(parameters_, other.parameters_);
    std::swap(host_, other.host_);
    std::swap(backend_, other.backend_);
    std::swap(device_, other.device_);
  }

  std::size_t parameters_ = 0;
  memory::PinnedRegion host_;
  device::Backend* backend_ = nullptr;
  std::byte* device_ = nullptr;
};

}  // namespace outboard::pipeline
