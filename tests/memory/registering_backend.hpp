// SPDX-License-Identifier: Apache-2.0
/// A device that registers host memory, takes note of copies, and says what it was asked.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "device/backend.hpp"
#include "outboard/error.hpp"

namespace outboard::testing {

/// Copies nothing. Every other call that could do something throws Error{unsupported}.
class RegisteringBackend final : public device::Backend {
 public:
  std::size_t call_limit_bytes = SIZE_MAX;   ///< a registration of more is refused
  std::size_t total_limit_bytes = SIZE_MAX;  ///< and so is one that makes more in all
  bool broken = false;                       ///< every registration fails
  std::optional<std::uint32_t> attached_to;  ///< what numa_node() says
  int broken_from = INT_MAX;                 ///< every one from this number on, the first is 1
  std::vector<std::span<std::byte>> registered;
  std::vector<std::span<const std::byte>> copies;  ///< host memory of each
  int register_calls = 0;
  int unregister_calls = 0;
  int unmapped_too_early = 0;      ///< unregistered after the memory had gone
  int pageable_registrations = 0;  ///< of memory whose first page was not there yet
  int out_of_order = 0;            ///< unregistered before one that was registered later

  [[nodiscard]] std::size_t registered_bytes() const {
    std::size_t bytes = 0;
    for (const auto memory : registered) bytes += memory.size();
    return bytes;
  }

  std::string_view name() const noexcept override { return "registering"; }
  std::optional<std::uint32_t> numa_node() const noexcept override { return attached_to; }
  bool stream_memory_ops() const noexcept override { return false; }
  core::Waiter& waiter() noexcept override { std::terminate(); }
  core::VirtualLoop* virtual_loop() noexcept override { return nullptr; }
  double host_elems_per_s(std::uint32_t) const noexcept override { return 0.0; }
  std::int64_t now_ns() const noexcept override { return 0; }
  std::string lost_reason() const override { return ""; }
  bool lost() const noexcept override { return false; }
  void* allocate(std::size_t) override { refuse(); }
  void release(void*) noexcept override {}
  device::MemoryInfo memory() const override { return {}; }
  void check_range(const void*, std::size_t) const override { refuse(); }
  NativeStream create_stream(const char*) override { refuse(); }
  void destroy_stream(NativeStream) noexcept override {}
  device::Event create_event() override { refuse(); }
  device::Event create_timed_event() override { refuse(); }
  void destroy_event(device::Event) noexcept override {}
  void record(device::Event, NativeStream) override { refuse(); }
  void wait_event(NativeStream, device::Event) override { refuse(); }
  void notify(device::Event, core::Callback) override { refuse(); }
  bool reached(device::Event) const override { refuse(); }
  double elapsed_us(device::Event, device::Event) const override { refuse(); }
  void synchronize(device::Event, const char*) override { refuse(); }
  device::Flag create_flag() override { refuse(); }
  void destroy_flag(device::Flag) noexcept override {}
  void wait_flag(NativeStream, device::Flag, std::uint32_t) override { refuse(); }
  void write_flag(device::Flag, std::uint32_t) noexcept override {}
  void copy_on_device(void*, const void*, std::size_t, NativeStream) override { refuse(); }
  void reduce_gradient(NativeStream, simd::ConstElements, std::uint64_t, void*) override {
    refuse();
  }
  void pack_gradient(NativeStream, simd::ConstElements, std::uint64_t, void*, void*) override {
    refuse();
  }
  void unpack(NativeStream, const device::DeviceUnpack&) override { refuse(); }
  void accumulate(NativeStream, const device::DeviceAccumulate&) override { refuse(); }
  void update(NativeStream, const device::DeviceUpdate&) override { refuse(); }
  void lamb_moments(NativeStream, const device::DeviceLambMoments&) override { refuse(); }
  void lamb_trust(NativeStream, const device::DeviceLambTrust&) override { refuse(); }
  void digest(NativeStream, const device::DeviceDigest&) override { refuse(); }
  void fill(NativeStream, simd::Elements, std::uint64_t, std::uint32_t) override { refuse(); }
  void fill_zero(NativeStream, void*, std::size_t) override { refuse(); }
  void to_float(NativeStream, void*, simd::ConstElements, std::uint64_t) override { refuse(); }

 protected:
  bool register_chunk(std::span<std::byte> memory) override {
    register_calls += 1;
    if (broken || register_calls >= broken_from) {
      throw Error(ErrorCode::device_failure, "register_host: broken on purpose");
    }
    unsigned char state = 0;
    (void)mincore(memory.data(), 1, &state);
    if ((state & 1U) == 0) pageable_registrations += 1;
    if (memory.size() > call_limit_bytes) return false;
    if (memory.size() > total_limit_bytes - registered_bytes()) return false;
    registered.push_back(memory);
    return true;
  }
  void unregister_chunk(std::span<std::byte> memory) noexcept override {
    unregister_calls += 1;
    unsigned char state = 0;
    if (mincore(memory.data(), 1, &state) != 0) unmapped_too_early += 1;
    const auto same = [&](auto known) {
      return known.data() == memory.data() && known.size() == memory.size();
    };
    if (registered.empty() || !same(registered.back())) out_of_order += 1;
    std::erase_if(registered, same);
  }
  void queue_copy_to_host(std::span<std::byte> host_dst, const void*, NativeStream) override {
    copies.push_back(host_dst);
  }
  void queue_copy_to_device(void*, std::span<const std::byte> host_src, NativeStream) override {
    copies.push_back(host_src);
  }

 private:
  [[noreturn]] static void refuse() {
    throw Error(ErrorCode::unsupported, "this device only registers host memory");
  }
};

}  // namespace outboard::testing
