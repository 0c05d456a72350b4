// SPDX-License-Identifier: Apache-2.0
#include "outboard/device.hpp"

#include <array>

#include "device/backend.hpp"
#include "device/backends.hpp"
#include "device/cuda/make_backend.hpp"
#include "device/sim/sim_backend.hpp"

namespace outboard {

Device Device::sim(const sim::Options& options) {
  return Device(sim::make_backend(options));
}

Device Device::host() {
  return Device(sim::make_host_backend());
}

std::string_view Device::name() const noexcept {
  return backend_->name();
}

std::span<const std::string_view> device::built_backends() noexcept {
  static constexpr std::array<std::string_view, 2> kNames = {"sim", "cuda"};
  return std::span(kNames).first(cuda::is_built() ? 2 : 1);
}

}  // namespace outboard
