// SPDX-License-Identifier: Apache-2.0
/// The software GPU: fenced device memory with a limit that refuses, streams, events, asynchronous
/// copies and kernels. No host pointer into its memory exists outside a running kernel.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "outboard/device.hpp"
#include "outboard/export.hpp"
#include "outboard/timeline.hpp"
#include "outboard/types.hpp"

namespace outboard::sim {

using Duration = std::chrono::nanoseconds;

enum class Mode : std::uint8_t {
  threads,       ///< one thread per stream, real time, optional rates
  virtual_time,  ///< one thread, a discrete-event loop with a virtual clock: exact and replayable
};

/// Device calls that can be made to fail.
enum class Call : std::uint8_t {
  allocate,
  register_host,
  create_stream,
  create_event,
  record,
  wait_event,
  notify,
  copy_to_host,
  copy_to_device,
  copy_on_device,
  kernel,
  wait_flag,
  write_flag,
};
[[nodiscard]] OUTBOARD_API const char* to_string(Call call) noexcept;

/// Makes the `nth` (from 1) call of that kind fail: `at_call` the call itself throws
/// Error{device_failure}; otherwise the call succeeds and its operation fails when it runs: the
/// device is lost, and every later call and wait throws Error{device_failure} naming the first.
struct Fault {
  Call call = Call::copy_to_host;
  std::uint64_t nth = 1;
  bool at_call = true;
};

/// Speeds; 0 means instant (threads: as fast as the host copies).
struct Rates {
  double link_down_bytes_per_s = 0.0;  ///< device to host
  double link_up_bytes_per_s = 0.0;    ///< host to device; both directions run at once
  double device_bytes_per_s = 0.0;     ///< engine kernels (norm, update): bytes touched
  Duration copy_latency{0};            ///< added to each copy across the link
  /// Virtual time only: elements per second that one host node updates by AdamW on 16-bit
  /// gradients, 28 bytes each; other updates take time in proportion to their bytes. 0: instant.
  /// Node i takes entry min(i, size-1).
  std::vector<double> host_elems_per_s{};
  /// Virtual time only: what the disk takes of an asynchronous save. 0: instant.
  double disk_bytes_per_s = 0.0;
};

struct OUTBOARD_API Options {
  std::size_t memory_bytes = std::size_t{64} << 20;  ///< an allocation beyond it is refused
  Mode mode = Mode::threads;
  Rates rates{};
  /// The system's number of the NUMA node that the device is attached to; none: unknown. What host
  /// memory the engine shares with the device alone (bounce ring, gate scalars) lies there.
  std::optional<std::uint32_t> numa_node{};
  bool stream_memory_ops = true;  ///< as cuStreamWaitValue32; without, wait() may block the host
  std::size_t pinned_limit_bytes = SIZE_MAX;        ///< registering more host memory is refused
  std::size_t registration_limit_bytes = SIZE_MAX;  ///< of one registration; engines use several
  /// Virtual time: which of several operations that are ready at the same time goes first. Those
  /// that have been ready for longer go before them, and of the others the engine's short kernels
  /// before the trainer's, unless there are random delays.
  std::uint64_t seed = 0;
  Duration max_random_delay{0};  ///< virtual time: every operation takes up to this much longer
  std::vector<Fault> faults{};

  void validate() const;
};

/// Host access to device memory, for the time one kernel runs.
class OUTBOARD_API KernelView {
 public:
  /// The `count` elements of T at device address `address`. Valid until the kernel returns.
  /// @throws Error{invalid_argument} unless the whole range lies in one live allocation.
  template <class T>
  [[nodiscard]] std::span<T> as(const void* address, std::size_t count) {
    return {static_cast<T*>(resolve(address, count, sizeof(T), alignof(T))), count};
  }

  class Resolver;
  explicit KernelView(Resolver& resolver) : resolver_(resolver) {}

 private:
  void* resolve(const void* address, std::size_t count, std::size_t element_bytes,
                std::size_t alignment);
  Resolver& resolver_;
};

using Kernel = std::function<void(KernelView&)>;

struct EventId {
  std::uint32_t value = UINT32_MAX;
};

struct MemoryUse {
  std::size_t limit_bytes = 0;
  std::size_t used_bytes = 0;  ///< live allocations, each rounded up to 256 bytes
  std::size_t peak_bytes = 0;
};

/// What has crossed the link and what has been called, engines included.
struct Counters {
  std::uint64_t copies_to_host = 0, copies_to_device = 0;
  std::uint64_t bytes_to_host = 0, bytes_to_device = 0;
  std::uint64_t host_waits = 0;  ///< times a host thread waited for the device
  std::uint64_t live_allocations = 0, live_streams = 0, live_events = 0, live_registrations = 0;
};

/// What a trainer does with a software GPU. A cheap handle on the same device as `device()`.
/// Thread-safe in Mode::threads; one thread only in Mode::virtual_time.
/// Once the device is lost every call throws Error{device_failure}, except those that release,
/// destroy or report.
class OUTBOARD_API Gpu {
 public:
  explicit Gpu(const Options& options);
  /// @throws Error{invalid_argument} if `device` is not a software GPU.
  explicit Gpu(Device device);

  [[nodiscard]] const Device& device() const noexcept { return device_; }

  /// 256-byte aligned device memory, contents undefined. The address is not readable by the host.
  /// @throws Error{out_of_memory} saying asked, used and limit.
  [[nodiscard]] void* allocate(std::size_t bytes);
  /// Gives memory back. Waits for nothing: the caller makes sure that no queued work uses it; work
  /// that does loses the device when it runs. @throws Error{invalid_argument} unless live.
  void release(void* address);

  [[nodiscard]] NativeStream create_stream(const std::string& name = "stream");
  /// Waits until the stream is empty, then removes it.
  void destroy_stream(NativeStream stream);

  /// Queues a kernel that takes `duration` of the compute engine's time (kernels of all streams
  /// share one). A zero duration takes none of it: such kernels of different streams run side by
  /// side, in Mode::threads for as long as `kernel` itself takes. A kernel that throws loses the
  /// device. It must not own a handle on the device, nor call the device; `name` is borrowed until
  /// it has run.
  void launch(NativeStream stream, Duration duration, Kernel kernel, const char* name = "kernel");
  /// Queue copies. The host memory must stay valid until the stream has passed them.
  void copy_to_device(void* device_dst, std::span<const std::byte> host_src, NativeStream stream);
  void copy_to_host(std::span<std::byte> host_dst, const void* device_src, NativeStream stream);

  /// A new event that completes when `stream` reaches this point. Freed with the device.
  [[nodiscard]] EventId create_event();
  void record(EventId event, NativeStream stream);
  /// Work queued on `stream` from now on starts after `event`'s last record before this call.
  void wait_event(NativeStream stream, EventId event);

  /// Blocks until everything queued on the stream (all streams) has run.
  void synchronize(NativeStream stream);
  void synchronize();

  /// Forgets what was recorded and keeps, from now on, what the device runs, what engines on it run
  /// on the host and the calls that wait: at most `spans` of them, in memory taken now. 0: stops.
  /// Off at first, which costs nothing. Spans of one row do not overlap, except in Mode::threads
  /// kernels without a duration, and waits of several threads.
  void start_recording(std::size_t spans);
  /// What has ended since start_recording(), by the clock of now(). Recording goes on.
  [[nodiscard]] Timeline recording() const;

  [[nodiscard]] MemoryUse memory() const;
  [[nodiscard]] Counters counters() const;
  /// Virtual clock, or real time since the device was made.
  [[nodiscard]] Duration now() const;

 private:
  Device device_;
};

}  // namespace outboard::sim
