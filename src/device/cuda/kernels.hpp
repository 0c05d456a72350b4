// SPDX-License-Identifier: Apache-2.0
/// The device's kernels, loaded into one context, and how each is launched.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "device/backend.hpp"
#include "device/cuda/context.hpp"
#include "device/cuda/kernel_arguments.hpp"

namespace outboard::device::cuda {

/// The fat binary of kernels that this build carries: code for several generations of GPUs.
[[nodiscard]] const void* kernel_image() noexcept;

/// Every kernel by its place in the table of names.
enum class KernelName : std::uint8_t {
  reduce,
  reduce_blocks,
  unpack,
  accumulate,
  update_adamw,
  update_adam,
  update_sgd,
  update_lion,
  update_adagrad,
  update_lamb,
  lamb_moments,
  lamb_trust,
  digest,
  to_float,
};
inline constexpr std::size_t kKernels = 14;
/// "outboard_reduce" and so on.
[[nodiscard]] const char* symbol_of(KernelName kernel) noexcept;

/// A launch's size: one dimension each.
struct LaunchShape {
  std::uint64_t blocks = 1;
  std::uint32_t threads = 1;
};

/// Calls need the context to be current.
class Kernels {
 public:
  /// Loads the module. @throws Error{unsupported} if the driver has no code of it for the device
  /// and makes none, Error{device_failure} for any other failure; both say what the driver says.
  explicit Kernels(const Context& context);
  ~Kernels();
  Kernels(const Kernels&) = delete;
  Kernels& operator=(const Kernels&) = delete;

  /// Queues one kernel. Nothing for no blocks. @throws Error{device_failure}.
  template <class Arguments>
  void launch(KernelName kernel, const LaunchShape& shape, CUstream stream,
              Arguments arguments) const {
    launch_raw(kernel, shape, stream, &arguments);
  }
  /// For kernels that walk `elems` elements in strides of the grid.
  [[nodiscard]] LaunchShape shape_for(std::uint64_t elems) const noexcept;

 private:
  void launch_raw(KernelName kernel, const LaunchShape& shape, CUstream stream,
                  void* arguments) const;

  const Context& context_;
  CUmodule module_ = nullptr;
  std::array<CUfunction, kKernels> functions_{};
  std::uint64_t most_blocks_ = 1;
};

}  // namespace outboard::device::cuda
