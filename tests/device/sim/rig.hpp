// SPDX-License-Identifier: Apache-2.0
/// A software GPU with its backend, for tests that look at both sides of it.
#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "device/backend.hpp"
#include "outboard/sim.hpp"
#include "support/expect_error.hpp"

namespace outboard::testing {

using namespace std::chrono_literals;

inline sim::Options virtual_options(std::uint64_t seed = 0) {
  sim::Options options;
  options.memory_bytes = std::size_t{1} << 20;
  options.mode = sim::Mode::virtual_time;
  options.seed = seed;
  return options;
}

inline sim::Options thread_options() {
  sim::Options options;
  options.memory_bytes = std::size_t{1} << 20;
  return options;
}

struct Rig {
  explicit Rig(const sim::Options& options) : gpu(options), device(*gpu.device().backend()) {}
  template <class T>
  T* allocate(std::size_t count) {
    return static_cast<T*>(gpu.allocate(count * sizeof(T)));
  }
  sim::Gpu gpu;
  device::Backend& device;
};

template <class T>
std::span<std::byte> bytes_of(std::vector<T>& values) {
  return std::as_writable_bytes(std::span<T>(values));
}

}  // namespace outboard::testing
