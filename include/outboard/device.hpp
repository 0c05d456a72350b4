// SPDX-License-Identifier: Apache-2.0
/// The device an engine works for.
#pragma once

#include <memory>
#include <string_view>

#include "outboard/export.hpp"

namespace outboard {

namespace device {
class Backend;
}
namespace sim {
struct Options;
}

/// A handle on one device. Copies share it: the trainer and every engine keep the device alive, so
/// an engine can always drain before the memory under it goes, whichever is destroyed first.
/// Thread-safe.
class OUTBOARD_API Device {
 public:
  /// A software GPU (see outboard/sim.hpp for its options and for what a trainer does with it).
  /// @throws Error{invalid_config} for contradicting options, Error{out_of_memory} if the host
  /// cannot map `memory_bytes`.
  [[nodiscard]] static Device sim(const sim::Options& options);

  /// The host itself as the device: weights and gradients lie in ordinary memory of this process,
  /// at any address that it has mapped. For trainers that run on the cpu.
  ///
  /// NativeStream{0} stands for the calling thread: what it has written before gradient_ready() is
  /// the gradient, wait() and wait_gradient_taken() return when it may read the weight or write the
  /// gradient. (sim::Gpu on this device makes other streams.) Memory that is handed over must stay
  /// mapped as long as the engine may use it.
  /// @throws Error{out_of_memory} if the host has no address space for its own tables.
  [[nodiscard]] static Device host();

  /// The GPU of NVIDIA's that the driver numbers `ordinal` among those this process may see,
  /// through its primary context: the one that frameworks of the process use too. Streams are
  /// `cudaStream_t` cast to integers, the default ones (0, 1, 2) among them; stream 2 is the
  /// calling thread's. Each call leaves the caller's current context as it was. Up to seconds the
  /// first time.
  /// @throws Error{unsupported} saying which it is: a build without a CUDA toolkit, no driver, one
  /// too old, no device, devices that this process may not use; and the remedy.
  /// Error{invalid_argument} for an ordinal that is not there, Error{device_failure}.
  [[nodiscard]] static Device cuda(int ordinal = 0);

  [[nodiscard]] std::string_view name() const noexcept;

  /// For the library's own rooms. Not part of the stable interface.
  explicit Device(std::shared_ptr<device::Backend> backend) : backend_(std::move(backend)) {}
  [[nodiscard]] const std::shared_ptr<device::Backend>& backend() const noexcept {
    return backend_;
  }

 private:
  std::shared_ptr<device::Backend> backend_;
};

}  // namespace outboard
