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
