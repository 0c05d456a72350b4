// SPDX-License-Identifier: Apache-2.0
/// The software GPU without the part that makes time pass: handles, queues, checks, faults, counts.
/// ThreadBackend and VirtualBackend run the queues.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "device/backend.hpp"
#include "device/handle_table.hpp"
#include "device/sim/device_memory.hpp"
#include "device/sim/fault_plan.hpp"
#include "device/sim/stream.hpp"

namespace outboard::sim {

/// One mutex guards everything but the memory (which has its own). It is never held while a
/// callback, a kernel or a copy runs, so callers may hold any lock of theirs, except around
/// destroy_stream() and synchronize(), which wait.
class SimBackend : public device::Backend {
 public:
  ~SimBackend() override = default;

  /// From now on NativeStream{0} stands for the calling thread.
  void add_caller_stream() { caller_ = create_stream("caller", false); }

  // --- for sim::Gpu ---
  void launch(NativeStream stream, std::int64_t duration_ns, Kernel kernel, const char* name);
  void require_stream(NativeStream stream) const;
  /// @return false if no live allocation starts at `address`.
  bool give_back(void* address) noexcept { return memory_.release(address); }
  void synchronize_stream(NativeStream stream);
  void synchronize_all();
  [[nodiscard]] MemoryUse memory_use() const { return memory_.use(); }
  /// Loses the device, as a failed operation does.
  void break_down(const std::string& reason) noexcept {
    const Lock lock(mutex_);
    lose(reason);
  }
  [[nodiscard]] Counters counters() const;

  void start_recording(std::size_t capacity) { recorder_.start(capacity); }
  [[nodiscard]] Timeline recording() const { return recorder_.take(); }

  // --- device::Backend ---
  [[nodiscard]] std::string_view name() const noexcept final {
    return memory_.on_host() ? "host" : "sim";
  }
  [[nodiscard]] std::optional<std::uint32_t> numa_node() const noexcept final {
    return options_.numa_node;
  }
  [[nodiscard]] bool stream_memory_ops() const noexcept final { return options_.stream_memory_ops; }
  [[nodiscard]] core::Waiter& waiter() noexcept final { return *waiter_; }
  [[nodiscard]] core::SpanRecorder* recorder() noexcept final { return &recorder_; }
  [[nodiscard]] double host_elems_per_s(std::uint32_t node) const noexcept final;
  [[nodiscard]] double disk_bytes_per_s() const noexcept final {
    return options_.rates.disk_bytes_per_s;
  }
  [[nodiscard]] std::string lost_reason() const final;
  [[nodiscard]] bool lost() const noexcept final { return lost_.load(std::memory_order_acquire); }

  [[nodiscard]] void* allocate(std::size_t bytes) final;
  void release(void* address) noexcept final { (void)give_back(address); }
  [[nodiscard]] device::MemoryInfo memory() const final;
  void check_range(const void* address, std::size_t bytes) const final {
    memory_.check(address, bytes, false);
  }
  void check_written_range(const void* address, std::size_t bytes) const final {
    memory_.check(address, bytes, true);
  }

  [[nodiscard]] NativeStream create_stream(const char* name) final {
    return create_stream(name, false);
  }
  [[nodiscard]] NativeStream create_urgent_stream(const char* name) final {
    return create_stream(name, true);
  }
  void destroy_stream(NativeStream stream) noexcept final;
  [[nodiscard]] device::Event create_event() final;
  [[nodiscard]] device::Event create_timed_event() final { return create_event(); }
  void destroy_event(device::Event event) noexcept final;
  void record(device::Event event, NativeStream stream) final;
  void wait_event(NativeStream stream, device::Event event) final;
  void notify(device::Event event, core::Callback callback) final;
  [[nodiscard]] bool reached(device::Event event) const final;
  [[nodiscard]] double elapsed_us(device::Event from, device::Event to) const final;
  void synchronize(device::Event event, const char* who) final;
  void finish_for_caller(NativeStream stream) final;
  [[nodiscard]] device::Flag create_flag() final;
  void destroy_flag(device::Flag flag) noexcept final;
  void wait_flag(NativeStream stream, device::Flag flag, std::uint32_t value) final;
  void write_flag(device::Flag flag, std::uint32_t value) noexcept final;

  void copy_on_device(void* device_dst, const void* device_src, std::size_t bytes,
                      NativeStream stream) final;
  void reduce_gradient(NativeStream stream, simd::ConstElements grad, std::uint64_t elems,
                       void* scalars) final;
  void pack_gradient(NativeStream stream, simd::ConstElements grad, std::uint64_t elems,
                     void* packed, void* scalars) final;
  void unpack(NativeStream stream, const device::DeviceUnpack& arguments) final;
  void accumulate(NativeStream stream, const device::DeviceAccumulate& arguments) final;
  void update(NativeStream stream, const device::DeviceUpdate& arguments) final;
  void lamb_moments(NativeStream stream, const device::DeviceLambMoments& arguments) final;
  void lamb_trust(NativeStream stream, const device::DeviceLambTrust& arguments) final;
  void digest(NativeStream stream, const device::DeviceDigest& arguments) final;
  void fill(NativeStream stream, simd::Elements dst, std::uint64_t elems, std::uint32_t bits) final;
  void fill_zero(NativeStream stream, void* dst, std::size_t bytes) final;
  void to_float(NativeStream stream, void* dst_fp32, simd::ConstElements src,
                std::uint64_t elems) final;

 protected:
  /// `origin_ns`: the clock of core::RecordedTime when now_ns() is 0.
  SimBackend(const Options& options, DeviceMemory::Kind memory,
             std::unique_ptr<core::Waiter> waiter, std::int64_t origin_ns);

  // --- what a mode adds; all are called with the mutex held, unless said otherwise ---
  [[nodiscard]] virtual std::unique_ptr<Stream> make_stream() = 0;
  virtual void start(Stream& stream) = 0;
  /// Without the mutex. The stream is drained or the device is lost; nothing of it runs afterwards.
  virtual void stop(Stream& stream) noexcept = 0;
  /// The stream has a new operation, or what its head waits for may have come.
  virtual void kick(Stream& stream) = 0;
  /// `callback` is due because `stream` has just completed an operation.
  virtual void deliver(Stream& stream, const core::Callback& callback) = 0;
  /// `callback` is due although nothing has just completed. `stream` is null for an event that was
  /// never recorded.
  virtual void deliver_apart(Stream* stream, const core::Callback& callback) = 0;
  virtual void on_lost() noexcept = 0;

  /// Keeps a span of the stream's current operation if somebody records. With or without the mutex.
  void record_span(const Stream& stream, const core::RecordedTime& time) noexcept;

  // --- what the modes use; all with the mutex held ---
  [[nodiscard]] bool satisfied(const Work& wait) const;
  /// Makes kick(stream) come when the wait at its head may be satisfied.
  void subscribe(Stream& stream);
  /// Counts the stream's current operation as done and sets off what waited for it.
  void complete(Stream& stream);
  /// A due callback has returned.
  void delivered(Stream* stream) noexcept;
  void lose(const std::string& reason) noexcept;
  /// "copy_to_host on stream 'down'".
  [[nodiscard]] std::string describe(const Stream& stream) const;
  /// What the head of a busy stream waits for, in words.
  [[nodiscard]] std::string describe_wait(const Work& wait) const;

  [[nodiscard]] bool register_chunk(std::span<std::byte> memory) final;
  void unregister_chunk(std::span<std::byte> memory) noexcept final;
  void queue_copy_to_host(std::span<std::byte> host_dst, const void* device_src,
                          NativeStream stream) final;
  void queue_copy_to_device(void* device_dst, std::span<const std::byte> host_src,
                            NativeStream stream) final;

  const Options options_;
  DeviceMemory memory_;
  mutable std::mutex mutex_;
  std::string lost_reason_;                       // "" while the device is sound
  std::vector<std::unique_ptr<Stream>> streams_;  // by number; destroyed ones are used again

 private:
  using Lock = std::unique_lock<std::mutex>;

  void require_sound(const char* call) const;
  [[nodiscard]] Stream& stream_at(NativeStream handle, const char* call) const;
  [[nodiscard]] NativeStream handle_of(const Stream& stream) const noexcept;
  void require_one_registration(const char* call, std::span<const std::byte> host) const;
  void enqueue(NativeStream handle, Work work, std::int64_t kernel_ns = -1);
  void push(Stream& stream, Operation operation);
  void add_arrival(Stream& stream, const Arrival& arrival);
  void arrive(Stream& stream, const Arrival& arrival);
  void note_time(const Stream& stream) noexcept;
  [[nodiscard]] std::int64_t completed_ns(device::Event event) const;
  void wait_for(Lock& lock, Stream& stream, std::uint64_t position, const char* who);
  void wait_drained(Stream& stream) noexcept;
  Stream& unused_stream();
  NativeStream create_stream(const char* name, bool urgent);
  void lose_if_failing(Call call, std::uint64_t number) noexcept;

  const std::uint32_t tag_;  // differs between devices of one process, and is never 0
  NativeStream caller_;      // the host device's NativeStream{0}
  core::SpanRecorder recorder_;
  std::unique_ptr<core::Waiter> waiter_;
  FaultPlan faults_;
  device::HandleTable<EventState> events_;
  device::HandleTable<FlagState> flags_;
  std::vector<std::uint32_t> unused_streams_;
  std::map<const std::byte*, std::size_t> registered_;
  std::size_t registered_bytes_ = 0;
  Counters counters_;
  std::atomic<bool> lost_{false};
};

/// Makes the backend that `options.mode` asks for.
[[nodiscard]] std::shared_ptr<device::Backend> make_backend(const Options& options);
[[nodiscard]] std::shared_ptr<device::Backend> make_thread_backend(const Options& options);
/// In real time, as fast as the host copies, on memory of the process itself.
[[nodiscard]] std::shared_ptr<device::Backend> make_host_backend();
[[nodiscard]] std::shared_ptr<device::Backend> make_virtual_backend(const Options& options);

}  // namespace outboard::sim
