// SPDX-License-Identifier: Apache-2.0
/// A made-up GPU as Linux describes it in /sys, below a FixtureRoot.
#pragma once

#include <string>

#include "topology/fixture_machine.hpp"

namespace outboard::testing {

/// What each file says; null: there is no such file.
struct FixtureGpu {
  std::string address;
  const char* numa_node = "0";
  const char* near_cpus = nullptr;
  const char* kind = "0x030200";
  const char* vendor = "0x10de";
  const char* speed = "16.0 GT/s PCIe";
  const char* lanes = "16";
};

namespace fixture {

inline void write_gpu(const FixtureRoot& root, const FixtureGpu& gpu) {
  const std::string folder = "/sys/bus/pci/devices/" + gpu.address + "/";
  const auto write = [&](const char* name, const char* text) {
    if (text != nullptr) root.write(folder + name, std::string(text) + "\n");
  };
  write("vendor", gpu.vendor);
  write("class", gpu.kind);
  write("numa_node", gpu.numa_node);
  write("local_cpulist", gpu.near_cpus);
  write("current_link_speed", gpu.speed);
  write("current_link_width", gpu.lanes);
  write("max_link_speed", "16.0 GT/s PCIe");
  write("max_link_width", "16");
}

}  // namespace fixture
}  // namespace outboard::testing
