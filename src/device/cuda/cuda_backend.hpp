// SPDX-License-Identifier: Apache-2.0
/// A GPU through NVIDIA's driver, behind the interface that the engine knows.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "device/backend.hpp"
#include "device/cuda/context.hpp"
#include "device/cuda/flag_words.hpp"
#include "device/cuda/host_norm.hpp"
#include "device/cuda/kernels.hpp"
#include "device/cuda/mailbox.hpp"
#include "device/handle_table.hpp"

namespace outboard::device::cuda {

/// How time passes. Of a real driver always as it is by default.
struct Clock {
  core::VirtualLoop* loop = nullptr;  ///< a stand-in's: outlives the backend
  double host_elems_per_s = 0.0;      ///< virtual time: of one node at 28 bytes each
};

/// One mutex guards the tables and is held across driver calls: the driver's own thread never takes
/// it (see Mailbox), and none of those calls waits for work of the device. What does wait
/// (synchronize(), destroy_stream()) does so without it.
class CudaBackend final : public Backend {
 public:
  /// @throws Error{unsupported}, Error{invalid_argument} or Error{device_failure} saying why device
  /// `ordinal` cannot be used.
  explicit CudaBackend(int ordinal, const Clock& clock = {});
  ~CudaBackend() override;

  [[nodiscard]] std::string_view name() const noexcept override { return context_.device_name(); }
  [[nodiscard]] bool stream_memory_ops() const noexcept override { return stream_memory_ops_; }
  [[nodiscard]] std::size_t queue_depth() const noexcept override { return kQueueDepth; }
  [[nodiscard]] const std::string& why_no_kernels() const noexcept override {
    return why_no_kernels_;
  }
  [[nodiscard]] core::Waiter& waiter() noexcept override { return *waiter_; }
  [[nodiscard]] core::VirtualLoop* virtual_loop() noexcept override { return clock_.loop; }
  [[nodiscard]] double host_elems_per_s(std::uint32_t node) const noexcept override;
  [[nodiscard]] std::int64_t now_ns() const noexcept override;
  [[nodiscard]] std::string lost_reason() const override;
  [[nodiscard]] bool lost() const noexcept override { return lost_.load(); }

  [[nodiscard]] void* allocate(std::size_t bytes) override;
  void release(void* address) noexcept override;
  [[nodiscard]] MemoryInfo memory() const override;
  void check_range(const void* address, std::size_t bytes) const override;

  [[nodiscard]] NativeStream create_stream(const char* name) override;
  void destroy_stream(NativeStream stream) noexcept override;
  [[nodiscard]] Event create_event() override { return make_event(false); }
  [[nodiscard]] Event create_timed_event() override { return make_event(true); }
  void destroy_event(Event event) noexcept override;
  void record(Event event, NativeStream stream) override;
  void wait_event(NativeStream stream, Event event) override;
  void notify(Event event, core::Callback callback) override;
  [[nodiscard]] bool reached(Event event) const override;
  [[nodiscard]] double elapsed_us(Event from, Event to) const override;
  void synchronize(Event event, const char* who) override;

  [[nodiscard]] Flag create_flag() override;
  void destroy_flag(Flag flag) noexcept override;
  void wait_flag(NativeStream stream, Flag flag, std::uint32_t value) override;
  void write_flag(Flag flag, std::uint32_t value) noexcept override;

  void copy_on_device(void* device_dst, const void* device_src, std::size_t bytes,
                      NativeStream stream) override;
  void reduce_gradient(NativeStream stream, simd::ConstElements grad, std::uint64_t elems,
                       void* scalars) override;
  void pack_gradient(NativeStream stream, simd::ConstElements grad, std::uint64_t elems,
                     void* packed, void* scalars) override;
  void unpack(NativeStream stream, const DeviceUnpack& arguments) override;
  void accumulate(NativeStream stream, const DeviceAccumulate& arguments) override;
  void update(NativeStream stream, const DeviceUpdate& arguments) override;
  void lamb_moments(NativeStream stream, const DeviceLambMoments& arguments) override;
  void lamb_trust(NativeStream stream, const DeviceLambTrust& arguments) override;
  void digest(NativeStream stream, const DeviceDigest& arguments) override;
  void fill(NativeStream stream, simd::Elements dst, std::uint64_t elems,
            std::uint32_t bits) override;
  void fill_zero(NativeStream stream, void* dst, std::size_t bytes) override;
  void to_float(NativeStream stream, void* dst_fp32, simd::ConstElements src,
                std::uint64_t elems) override;

 private:
  using Lock = std::unique_lock<std::mutex>;

  /// What belongs to one stream, an own one or one of the caller's.
  struct Lane {
    std::string name;
    bool own = false;
    CUstream notes = nullptr;  ///< waits for events of the stream and runs host functions
    CUdeviceptr blocks = 0;    ///< room for kBlocksOfLane BlockScalars
    NormRoom norm;             ///< without kernels
    Mailbox::Pending pending = 0;
  };
  struct EventState {
    CUevent handle = nullptr;
    bool timed = false;
    bool recorded = false;
    Lane* lane = nullptr;  ///< of the last record
  };
  static constexpr std::uint64_t kBlocksOfLane = 8192;
  /// Nothing is queued behind flags. A stream takes about a thousand operations, the trainer's own
  /// among them; a call that finds it full blocks, with the mutexes that raising a flag takes.
  static constexpr std::size_t kQueueDepth = 0;

  [[nodiscard]] bool register_chunk(std::span<std::byte> memory) override;
  void unregister_chunk(std::span<std::byte> memory) noexcept override;
  void queue_copy_to_host(std::span<std::byte> host_dst, const void* device_src,
                          NativeStream stream) override;
  void queue_copy_to_device(void* device_dst, std::span<const std::byte> host_src,
                            NativeStream stream) override;

  void load_kernels();
  [[nodiscard]] bool can_wait_for_words();
  void give_back_all() noexcept;

  // --- failures ---
  void require_sound(const char* call) const;
  /// As Context::require(); a failure of the whole context loses the device.
  void require(CUresult result, const char* call, const Subject& subject = {}) const;
  void lose(const std::string& reason) const noexcept;
  /// Whether work that failed in the meantime has taken the context with it.
  void poll() const noexcept;

  // --- with the mutex held ---
  [[nodiscard]] CUstream stream_of(NativeStream stream, const char* call) const;
  Lane& lane_of(NativeStream stream);
  std::unique_ptr<Lane> make_lane(const char* name, bool own);
  void close_lane(Lane& lane) noexcept;
  [[nodiscard]] Event make_event(bool timed);
  void check_device_range(const void* address, std::size_t bytes) const;
  void check_elements(simd::ConstElements at, std::uint64_t elems) const;
  /// @throws Error{unsupported} where there are none.
  [[nodiscard]] const Kernels& kernels(const char* call) const;
  void reduce(NativeStream stream, simd::ConstElements grad, std::uint64_t elems, void* packed,
              void* scalars, const char* call);
  template <class RuleScalars>
  void launch_update(CUstream stream, const DeviceUpdate& work, const RuleScalars& scalars,
                     KernelName kernel);

  const Clock clock_;
  const std::chrono::steady_clock::time_point start_;
  Context context_;
  const DriverApi& api_;
  bool stream_memory_ops_ = false;
  std::unique_ptr<core::Waiter> waiter_;
  std::unique_ptr<Mailbox> mailbox_;
  std::unique_ptr<Kernels> kernels_;  // null: the driver does not load them
  std::string why_no_kernels_;
  HostNorm host_norm_;
  FlagWords words_;

  mutable std::mutex mutex_;
  mutable std::string lost_reason_;
  mutable std::mutex reason_mutex_;
  mutable std::atomic<bool> lost_{false};
  HandleTable<EventState> events_;
  HandleTable<FlagState> flags_;
  std::unordered_map<std::uint64_t, std::unique_ptr<Lane>> lanes_;
  std::set<std::uint64_t> destroyed_;  // handles of own streams that are gone and not used again
  std::map<std::uintptr_t, std::size_t> allocations_;
};

}  // namespace outboard::device::cuda
