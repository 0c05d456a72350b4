// SPDX-License-Identifier: Apache-2.0
#include "outboard/device.hpp"

#include "device/backend.hpp"
#include "device/sim/sim_backend.hpp"

namespace outboard {

Device Device::sim(const sim::Options& options) {
  return Device(sim::make_backend(options));
}

std::string_view Device::name() const noexcept {
  return backend_->name();
}

}  // namespace outboard
