// SPDX-License-Identifier: Apache-2.0
#include "device_buffer.hpp"

#include <utility>

#include "outboard/error.hpp"

namespace example {

DeviceBuffer::DeviceBuffer(outboard::sim::Gpu gpu, std::size_t bytes)
    : address_(gpu.allocate(bytes)), bytes_(bytes) {
  gpu_.emplace(std::move(gpu));
}

DeviceBuffer::~DeviceBuffer() {
  if (!gpu_) return;
  try {
    gpu_->release(address_);
  } catch (const outboard::Error&) {
    // Only a lost device refuses, and it has been reported where it was lost.
  }
}

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept {
  *this = std::move(other);
}

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  std::swap(gpu_, other.gpu_);
  std::swap(address_, other.address_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

}  // namespace example
