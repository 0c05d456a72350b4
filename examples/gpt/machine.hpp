// SPDX-License-Identifier: Apache-2.0
/// The device a model is on: the software GPU, or one of NVIDIA's.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "ops.hpp"
#include "outboard/outboard.hpp"

namespace gpt {

/// Device memory as the operators of a machine take it: on the software GPU what its kernel may
/// touch, on another the addresses as they are, which the host may not follow.
class View {
 public:
  View() = default;
  explicit View(outboard::sim::KernelView& view) : view_(&view) {}

  template <class T>
  [[nodiscard]] std::span<T> as(const void* address, std::size_t count) const {
    if (view_ != nullptr) return view_->as<T>(address, count);
    return {static_cast<T*>(const_cast<void*>(address)), count};
  }

 private:
  outboard::sim::KernelView* view_ = nullptr;
};

/// Calls an operator. On the software GPU while the kernel runs; on another, where operators queue
/// kernels, at once.
using OperatorCall = std::function<void(View&)>;

/// One thread.
class Machine {
 public:
  virtual ~Machine() = default;
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  [[nodiscard]] virtual outboard::Device device() const = 0;
  [[nodiscard]] virtual std::unique_ptr<Ops> make_ops(const GptShape& shape,
                                                      std::size_t threads) = 0;
  /// Whether a call's time is the operator's.
  [[nodiscard]] virtual bool times_calls() const = 0;

  [[nodiscard]] virtual void* allocate(std::size_t bytes) = 0;
  virtual void release(void* address) noexcept = 0;
  [[nodiscard]] virtual outboard::sim::MemoryUse memory() const = 0;
  [[nodiscard]] virtual outboard::sim::Duration now() const = 0;

  [[nodiscard]] virtual outboard::NativeStream create_stream(const char* name) = 0;
  virtual void synchronize(outboard::NativeStream stream) = 0;
  virtual void copy_to_device(void* to, std::span<const std::byte> from,
                              outboard::NativeStream stream) = 0;
  virtual void copy_to_host(std::span<std::byte> to, const void* from,
                            outboard::NativeStream stream) = 0;
  /// `charged`: in virtual time. `name` is borrowed until it has run.
  virtual void launch(outboard::NativeStream stream, outboard::sim::Duration charged,
                      OperatorCall call, const char* name) = 0;
  /// Calls `function` on some thread when the stream gets there; it touches no device.
  virtual void run_on_host(outboard::NativeStream stream, std::function<void()> function) = 0;

 protected:
  Machine() = default;
};

[[nodiscard]] std::shared_ptr<Machine> make_machine(outboard::sim::Gpu gpu);
/// @throws std::runtime_error in a build without it, saying how to get it; and outboard::Error
/// saying why there is no such GPU.
[[nodiscard]] std::shared_ptr<Machine> make_cuda_machine(int ordinal);

/// Owns one allocation of device memory. Empty by default.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  DeviceBuffer(std::shared_ptr<Machine> machine, std::size_t bytes)
      : machine_(std::move(machine)), address_(machine_->allocate(bytes)) {}
  /// Gives the memory back; no queued work may use it any more.
  ~DeviceBuffer() {
    if (machine_ != nullptr) machine_->release(address_);
  }
  DeviceBuffer(DeviceBuffer&& other) noexcept
      : machine_(std::move(other.machine_)), address_(std::exchange(other.address_, nullptr)) {}
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    std::swap(machine_, other.machine_);
    std::swap(address_, other.address_);
    return *this;
  }

  [[nodiscard]] void* address() const noexcept { return address_; }

 private:
  std::shared_ptr<Machine> machine_;
  void* address_ = nullptr;
};

}  // namespace gpt
