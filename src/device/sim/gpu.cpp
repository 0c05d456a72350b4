// SPDX-License-Identifier: Apache-2.0
// The trainer's view of the software GPU.
#include <limits>
#include <utility>

#include "device/sim/kernel_view.hpp"
#include "device/sim/sim_backend.hpp"
#include "outboard/error.hpp"
#include "outboard/sim.hpp"

namespace outboard::sim {
namespace {

SimBackend& backend_of(const Device& device) {
  return static_cast<SimBackend&>(*device.backend());  // checked when the Gpu was made
}

}  // namespace

void* KernelView::resolve(const void* address, std::size_t count, std::size_t element_bytes,
                          std::size_t alignment) {
  if (count > std::numeric_limits<std::size_t>::max() / element_bytes) {
    throw Error(ErrorCode::invalid_argument, "KernelView: " + std::to_string(count) +
                                                 " elements of " + std::to_string(element_bytes) +
                                                 " bytes are more than memory can hold");
  }
  return resolver_.memory().alias(address, count * element_bytes, alignment);
}

Gpu::Gpu(const Options& options) : device_(Device::sim(options)) {}

Gpu::Gpu(Device device) : device_(std::move(device)) {
  if (dynamic_cast<SimBackend*>(device_.backend().get()) == nullptr) {
    throw Error(ErrorCode::invalid_argument, "sim::Gpu: the device is not a software GPU");
  }
}

void* Gpu::allocate(std::size_t bytes) {
  return backend_of(device_).allocate(bytes);
}

void Gpu::release(void* address) {
  if (address == nullptr || backend_of(device_).give_back(address)) return;
  throw Error(ErrorCode::invalid_argument,
              "sim::Gpu::release: no live allocation of this device starts at this address");
}

NativeStream Gpu::create_stream(const std::string& name) {
  return backend_of(device_).create_stream(name.c_str());
}

void Gpu::destroy_stream(NativeStream stream) {
  SimBackend& backend = backend_of(device_);
  backend.require_stream(stream);
  backend.destroy_stream(stream);
}

void Gpu::launch(NativeStream stream, Duration duration, Kernel kernel, const char* name) {
  backend_of(device_).launch(stream, duration.count(), std::move(kernel), name);
}

void Gpu::copy_to_device(void* device_dst, std::span<const std::byte> host_src,
                         NativeStream stream) {
  backend_of(device_).copy_to_device(device_dst, host_src, stream);
}

void Gpu::copy_to_host(std::span<std::byte> host_dst, const void* device_src, NativeStream stream) {
  backend_of(device_).copy_to_host(host_dst, device_src, stream);
}

EventId Gpu::create_event() {
  return {backend_of(device_).create_event().index};
}

void Gpu::record(EventId event, NativeStream stream) {
  backend_of(device_).record({event.value}, stream);
}

void Gpu::wait_event(NativeStream stream, EventId event) {
  backend_of(device_).wait_event(stream, {event.value});
}

void Gpu::synchronize(NativeStream stream) {
  backend_of(device_).synchronize_stream(stream);
}

void Gpu::synchronize() {
  backend_of(device_).synchronize_all();
}

void Gpu::start_recording(std::size_t spans) {
  backend_of(device_).start_recording(spans);
}

Timeline Gpu::recording() const {
  return backend_of(device_).recording();
}

MemoryUse Gpu::memory() const {
  return backend_of(device_).memory_use();
}

Counters Gpu::counters() const {
  return backend_of(device_).counters();
}

Duration Gpu::now() const {
  return Duration(backend_of(device_).now_ns());
}

}  // namespace outboard::sim
