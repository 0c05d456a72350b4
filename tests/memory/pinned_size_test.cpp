// SPDX-License-Identifier: Apache-2.0
// What pinning takes of the system, as the kernel counts it. The software GPU locks what it
// registers. Large, so in a program of its own.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "memory/pinned_region.hpp"
#include "outboard/device.hpp"
#include "outboard/sim.hpp"
#include "support/may_skip.hpp"

namespace outboard::memory {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

/// Bytes that /proc/self/status gives for a field such as "VmLck:".
std::size_t status_bytes(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with(field)) continue;
    std::istringstream words(line.substr(field.size()));
    std::size_t kib = 0;
    words >> kib;
    return kib * 1024;
  }
  return 0;
}

/// Locked and shared memory and what a driver has pinned: whatever a backend uses.
std::size_t pinned_now() {
  return status_bytes("VmLck:") + status_bytes("VmPin:") + status_bytes("RssShmem:");
}

struct Request {
  std::size_t regions = 1;
  std::size_t bytes = 0;  // of each
};

void expect_exact(const Request& request) {
  const sim::Gpu gpu(sim::Options{.memory_bytes = kMiB});
  device::Backend& backend = *gpu.device().backend();
  const topology::Machine machine = topology::synthetic("core:2 pu:1");
  const std::size_t before = pinned_now();
  const std::size_t asked = request.regions * request.bytes;
  {
    std::vector<PinnedRegion> regions;
    for (std::size_t i = 0; i < request.regions; ++i) {
      regions.emplace_back(backend, NumaArena(machine, 0, request.bytes, "test"));
      if (!regions.back().pinned()) OUTBOARD_SKIP("this process may not lock " << asked);
    }
    const std::size_t taken = pinned_now() - before;
    std::printf("%zu regions of %zu bytes: %zu asked, %zu taken\n", request.regions, request.bytes,
                asked, taken);
    EXPECT_GE(taken, asked);
    EXPECT_LE(taken, asked + request.regions * 2 * kMiB);
    EXPECT_LE(static_cast<double>(taken), 1.01 * static_cast<double>(asked));
  }
  EXPECT_LE(pinned_now(), before + kMiB);
}

TEST(PinnedSize, TwoAndAQuarterGibibytes) {
  expect_exact({1, 2304 * kMiB});
}
TEST(PinnedSize, OneAndAnEighth) {
  expect_exact({1, 1152 * kMiB});
}
TEST(PinnedSize, AHundredOfThirtyThreeMebibytes) {
  expect_exact({100, 33 * kMiB});
}
TEST(PinnedSize, NothingIsKept) {
  const std::size_t before = pinned_now();
  for (int i = 0; i < 3; ++i) expect_exact({1, 64 * kMiB + 4096});
  EXPECT_LE(pinned_now(), before + kMiB);
}

}  // namespace
}  // namespace outboard::memory
