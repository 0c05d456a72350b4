// SPDX-License-Identifier: Apache-2.0
/// Where each bucket's state lives and where it is updated. Never changes a bit of the result.
#pragma once

#include <cstdint>
#include <vector>

namespace outboard::plan {

enum class Home : std::uint8_t {
  host,             ///< state in host memory, updated by the cores of its node
  device_resident,  ///< state in device memory, updated by the device
  device_streamed,  ///< state in host memory, sent through the device and updated there
};
inline constexpr std::uint32_t kHomes = 3;

struct BucketPlace {
  Home home = Home::host;
  std::uint32_t node = 0;  ///< NUMA node of the state; no meaning for a resident bucket
  bool operator==(const BucketPlace&) const = default;
};

/// Result of plan(): a value, never changed afterwards.
struct Plan {
  std::vector<BucketPlace> buckets;    ///< in forward order, as in the layout
  std::uint64_t resident_elems = 0;    ///< padded elements whose state is on the device
  std::uint64_t streamed_elems = 0;    ///< padded elements that are sent through the device
  std::uint64_t device_bytes = 0;      ///< state and stream buffers on the device
  double step_us = 0.0;                ///< as simulated
  double host_only_step_us = 0.0;      ///< as simulated, with every bucket on the host
  std::uint64_t simulated_events = 0;  ///< what finding the plan took
  bool operator==(const Plan&) const = default;
};

}  // namespace outboard::plan
