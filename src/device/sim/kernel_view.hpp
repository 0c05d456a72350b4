// SPDX-License-Identifier: Apache-2.0
/// What stands behind a KernelView: the checked way from a device address to its alias.
#pragma once

#include "device/sim/device_memory.hpp"
#include "outboard/sim.hpp"

namespace outboard::sim {

class KernelView::Resolver {
 public:
  explicit Resolver(const DeviceMemory& memory) : memory_(memory) {}
  [[nodiscard]] const DeviceMemory& memory() const noexcept { return memory_; }

 private:
  const DeviceMemory& memory_;
};

}  // namespace outboard::sim
