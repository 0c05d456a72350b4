// SPDX-License-Identifier: Apache-2.0
/// Small value types shared by the whole public interface.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>

namespace outboard {

/// Element type of a parameter's weight and gradient in device memory, one for both.
/// Optimizer state (master weight and what the rule keeps beside it) is always FP32.
enum class DType : std::uint8_t {
  f16,   ///< IEEE binary16
  bf16,  ///< bfloat16: the upper half of an IEEE binary32
  f32,   ///< IEEE binary32
};

[[nodiscard]] constexpr std::size_t dtype_bytes(DType dtype) noexcept {
  return dtype == DType::f32 ? 4 : 2;
}
[[nodiscard]] constexpr const char* dtype_name(DType dtype) noexcept {
  return dtype == DType::f16 ? "f16" : dtype == DType::bf16 ? "bf16" : "f32";
}

/// Names one parameter of one Engine. Ids count up from 0 in registration order.
struct ParameterId {
  std::uint32_t value = UINT32_MAX;
  auto operator<=>(const ParameterId&) const = default;
};

/// Names one group of hyper-parameters of one Engine. Ids count up from 0.
struct GroupId {
  std::uint32_t value = UINT32_MAX;
  auto operator<=>(const GroupId&) const = default;
};

/// A device stream as the device's own runtime numbers it: a `cudaStream_t` cast to an integer, or
/// what `sim::Gpu::create_stream` returned. Borrowed: the engine never destroys a caller's stream.
struct NativeStream {
  std::uint64_t value = 0;
  auto operator<=>(const NativeStream&) const = default;
};

namespace literals {
constexpr std::size_t operator""_KiB(unsigned long long n) {
  return std::size_t{n} << 10;
}
constexpr std::size_t operator""_MiB(unsigned long long n) {
  return std::size_t{n} << 20;
}
constexpr std::size_t operator""_GiB(unsigned long long n) {
  return std::size_t{n} << 30;
}
}  // namespace literals

}  // namespace outboard
