// SPDX-License-Identifier: Apache-2.0
/// One entry of a stream's queue: what it does, which engine of the device it needs, how long.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>

#include "device/backend.hpp"
#include "device/sim/device_memory.hpp"
#include "outboard/sim.hpp"

namespace outboard::sim {

/// The parts of the device that run one operation at a time.
enum class Engine : std::uint8_t { none, compute, link_down, link_up };
inline constexpr std::size_t kEngines = 4;

struct TrainerKernel {
  Kernel body;
  const char* name = "kernel";
};
struct ReduceGradient {
  simd::ConstElements grad;
  std::uint64_t elems;
  void* scalars;
};
struct PackGradient {
  simd::ConstElements grad;
  std::uint64_t elems;
  void* packed;
  void* scalars;
};
struct Fill {
  simd::Elements dst;
  std::uint64_t elems;
  std::uint32_t bits;
};
struct FillZero {
  void* dst;
  std::size_t bytes;
};
struct ToFloat {
  void* dst_fp32;
  simd::ConstElements src;
  std::uint64_t elems;
};
struct CopyToHost {
  std::span<std::byte> dst;
  const void* src;
};
struct CopyToDevice {
  void* dst;
  std::span<const std::byte> src;
};
struct CopyOnDevice {
  void* dst;
  const void* src;
  std::size_t bytes;
};
struct Record {
  std::uint32_t event;  ///< a handle
};
/// Waits until stream number `stream` has completed `position` operations.
struct WaitPoint {
  std::uint32_t stream;
  std::uint64_t position;
};
struct WaitFlag {
  std::uint32_t flag;  ///< a handle
  std::uint32_t value;
};

using Work = std::variant<Record, WaitPoint, WaitFlag, CopyToHost, CopyToDevice, CopyOnDevice,
                          TrainerKernel, ReduceGradient, PackGradient, device::DeviceUnpack,
                          device::DeviceAccumulate, device::DeviceUpdate, device::DeviceLambMoments,
                          device::DeviceLambTrust, device::DeviceDigest, Fill, FillZero, ToFloat>;

struct Operation {
  Work work;
  std::int64_t duration_ns = 0;
  std::uint64_t failing_call = 0;  ///< not 0: fails when it runs, as that call of its kind
};

[[nodiscard]] Call call_of(const Work& work) noexcept;
[[nodiscard]] Engine engine_of(const Work& work) noexcept;
[[nodiscard]] const char* name_of(const Work& work) noexcept;
/// How the operation appears in a timeline, without a stream.
[[nodiscard]] core::RecordedSpan span_of(const Work& work) noexcept;
/// Time on its engine at these rates; a trainer's kernel brings its own.
[[nodiscard]] std::int64_t duration_ns(const Work& work, const Rates& rates);

/// @throws Error{invalid_argument} unless every device range of `work` is live and aligned.
void check_ranges(const Work& work, const DeviceMemory& memory);
/// Does all of it at once, on the host; checks ranges again. Nothing for records and waits.
void run(const Work& work, const DeviceMemory& memory);

}  // namespace outboard::sim
