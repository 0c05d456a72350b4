// SPDX-License-Identifier: Apache-2.0
/// Reads and writes of a software GPU's memory, as a trainer does them: copies through a stream.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "outboard/half.hpp"
#include "outboard/sim.hpp"

namespace outboard::testing {

/// Queues the copy and waits for it.
template <class T>
void upload(sim::Gpu& gpu, void* device, std::span<const T> values, NativeStream stream) {
  if (values.empty()) return;
  gpu.copy_to_device(device, std::as_bytes(values), stream);
  gpu.synchronize(stream);
}

/// Queues the copy behind what `stream` holds and waits for it.
template <class T>
std::vector<T> download(sim::Gpu& gpu, const void* device, std::size_t count, NativeStream stream) {
  std::vector<T> values(count);
  if (count == 0) return values;
  gpu.copy_to_host(std::as_writable_bytes(std::span<T>(values)), device, stream);
  gpu.synchronize(stream);
  return values;
}

inline std::vector<std::uint16_t> to_halves(std::span<const float> values) {
  std::vector<std::uint16_t> halves;
  halves.reserve(values.size());
  for (const float value : values) halves.push_back(half_from_float(value));
  return halves;
}

inline std::vector<float> to_floats(std::span<const std::uint16_t> halves) {
  std::vector<float> values;
  values.reserve(halves.size());
  for (const std::uint16_t half : halves) values.push_back(half_to_float(half));
  return values;
}

// --- elements of any dtype, by their bits --------------------------------------------------------

inline float float_of_bits(std::uint32_t bits, DType dtype) {
  if (dtype == DType::f32) return std::bit_cast<float>(bits);
  const auto half = static_cast<std::uint16_t>(bits);
  return dtype == DType::f16 ? half_to_float(half) : bf16_to_float(half);
}
/// To nearest.
inline std::uint32_t bits_of_float(float value, DType dtype) {
  if (dtype == DType::f32) return std::bit_cast<std::uint32_t>(value);
  return dtype == DType::f16 ? half_from_float(value) : bf16_from_float(value);
}
/// `value` after a detour through the dtype.
inline float rounded_to(float value, DType dtype) {
  return float_of_bits(bits_of_float(value, dtype), dtype);
}

inline std::uint32_t load_bits(std::span<const std::byte> elements, std::size_t i, DType dtype) {
  std::uint32_t bits = 0;  // little endian
  std::memcpy(&bits, elements.data() + i * dtype_bytes(dtype), dtype_bytes(dtype));
  return bits;
}
inline void store_bits(std::span<std::byte> elements, std::size_t i, std::uint32_t bits,
                       DType dtype) {
  std::memcpy(elements.data() + i * dtype_bytes(dtype), &bits, dtype_bytes(dtype));
}
inline std::vector<std::byte> to_elements(std::span<const float> values, DType dtype) {
  std::vector<std::byte> out(values.size() * dtype_bytes(dtype));
  for (std::size_t i = 0; i < values.size(); ++i) {
    store_bits(out, i, bits_of_float(values[i], dtype), dtype);
  }
  return out;
}

/// Owns device memory. Move-only. The caller makes sure that no queued work uses it at the end.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  DeviceBuffer(const sim::Gpu& gpu, std::size_t bytes) : gpu_(gpu), bytes_(bytes) {
    if (bytes > 0) address_ = gpu_.value().allocate(bytes);
  }
  ~DeviceBuffer() { reset(); }
  DeviceBuffer(DeviceBuffer&& other) noexcept
      : gpu_(std::move(other.gpu_)),
        address_(std::exchange(other.address_, nullptr)),
        bytes_(other.bytes_) {}
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    if (this == &other) return *this;
    reset();
    gpu_ = std::move(other.gpu_);
    address_ = std::exchange(other.address_, nullptr);
    bytes_ = other.bytes_;
    return *this;
  }

  [[nodiscard]] void* get() const noexcept { return address_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

 private:
  void reset() noexcept {
    if (address_ == nullptr) return;
    gpu_.value().release(address_);
    address_ = nullptr;
  }
  std::optional<sim::Gpu> gpu_;
  void* address_ = nullptr;
  std::size_t bytes_ = 0;
};

/// Takes all that is free in pieces of `piece_bytes` and gives every second one back: half of it is
/// free, and in pieces. The device has it again when what is returned goes.
[[nodiscard]] inline std::vector<std::optional<DeviceBuffer>> leave_pieces(
    const sim::Gpu& gpu, std::size_t piece_bytes) {
  std::vector<std::optional<DeviceBuffer>> pieces;
  const auto left = [&] { return gpu.memory().limit_bytes - gpu.memory().used_bytes; };
  while (left() >= piece_bytes) pieces.emplace_back(std::in_place, gpu, piece_bytes);
  for (std::size_t i = 0; i < pieces.size(); i += 2) pieces[i].reset();
  return pieces;
}

}  // namespace outboard::testing
