// SPDX-License-Identifier: Apache-2.0
/// The backends that the conformance suite runs on, and what its tests share.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "device/backend.hpp"

namespace outboard::testing {

/// One way to make a device. A new backend adds its own entries to flavours().
struct BackendFlavour {
  std::string name;
  std::function<std::shared_ptr<device::Backend>()> make;  ///< a second one is another device
  bool has_default_stream = false;  ///< NativeStream{} is a stream that is always there
  bool may_be_alone = false;        ///< the machine may have no second device
};
[[nodiscard]] std::vector<BackendFlavour> backend_flavours();
[[nodiscard]] std::vector<BackendFlavour> sim_flavours();
/// On the stand-in for NVIDIA's driver; none in a build without CUDA.
[[nodiscard]] std::vector<BackendFlavour> cuda_flavours();

class BackendTest : public ::testing::TestWithParam<BackendFlavour> {
 protected:
  BackendTest() : backend_(GetParam().make()), device_(*backend_) {}
  ~BackendTest() override {
    for (const NativeStream stream : streams_) device_.destroy_stream(stream);
  }

  NativeStream stream(const char* name = "stream") {
    streams_.push_back(device_.create_stream(name));
    return streams_.back();
  }
  template <class T>
  T* allocate(std::size_t count) {
    return static_cast<T*>(device_.allocate(count * sizeof(T)));
  }
  /// An event recorded now.
  device::Event mark(NativeStream on) {
    const device::Event event = device_.create_event();
    device_.record(event, on);
    return event;
  }
  void finish(NativeStream on) { device_.synchronize(mark(on), "the test waits for a stream"); }

  template <class T>
  void upload(T* dst, const std::vector<T>& values, NativeStream on) {
    device_.copy_to_device(dst, std::as_bytes(std::span(values)), on);
    finish(on);
  }
  template <class T>
  std::vector<T> download(const T* src, std::size_t count, NativeStream on) {
    std::vector<T> values(count);
    device_.copy_to_host(std::as_writable_bytes(std::span(values)), src, on);
    finish(on);
    return values;
  }
  /// Blocks `on` until `open(gate)`: by a flag, so only where there are stream memory operations.
  device::Flag gate(NativeStream on) {
    const device::Flag flag = device_.create_flag();
    device_.wait_flag(on, flag, 1);
    return flag;
  }
  void open(device::Flag gate) { device_.write_flag(gate, 1); }

  std::shared_ptr<device::Backend> backend_;
  device::Backend& device_;

 private:
  std::vector<NativeStream> streams_;
};

}  // namespace outboard::testing
