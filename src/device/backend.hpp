// SPDX-License-Identifier: Apache-2.0
/// What the engine needs of a device: memory, streams, events, copies, and few kernels. Everything
/// else belongs to the trainer.
///
/// Every call that fails throws Error{device_failure} naming the call; after an asynchronous
/// failure the device is lost and every call throws. Calls are thread-safe (virtual time: one
/// thread). "Queues" means: returns at once, runs in stream order.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/callback.hpp"
#include "core/span_recorder.hpp"
#include "core/virtual_loop.hpp"
#include "core/waiter.hpp"
#include "device/host_registrations.hpp"
#include "outboard/types.hpp"
#include "simd/update.hpp"

namespace outboard::device {

struct Event {
  std::uint32_t index = UINT32_MAX;
};

/// A 32-bit word that host threads write and streams wait for (cuStreamWaitValue32).
struct Flag {
  std::uint32_t index = UINT32_MAX;
};

struct MemoryInfo {
  std::size_t limit_bytes = 0;
  std::size_t used_bytes = 0;
};

/// What reduce_gradient() leaves in device memory for one parameter. 24 bytes.
struct GradientScalars {
  double sum_of_squares = 0.0;   ///< in the fixed tree of docs/numerics.md; of the finite ones
  std::uint64_t non_finite = 0;  ///< number of Inf and NaN elements
  std::uint64_t first_non_finite = 0;  ///< (element << 1) | is_nan; only if non_finite > 0
};

/// Where one weight of a packed range goes. An array of these lies in device memory. 24 bytes.
struct PackedWeight {
  void* weight = nullptr;
  std::uint64_t offset = 0;  ///< elements from the start of the range
  std::uint64_t elems = 0;
};

/// Copies every weight of a packed range to where it belongs.
struct DeviceUnpack {
  simd::ConstElements packed;     ///< the range
  std::uint64_t elems = 0;        ///< of the range
  const void* weights = nullptr;  ///< `count` entries of PackedWeight
  std::uint64_t count = 0;
};

/// One segment's update. All addresses are the device's.
struct DeviceUpdate {
  simd::ConstElements grad;  ///< 16-bit or f32 as the trainer left it, or an f32 sum
  simd::Elements weight;
  void* param = nullptr;         ///< FP32 master weight
  std::array<void*, 2> state{};  ///< FP32, the rule's; null: it has none such
  void* ema = nullptr;           ///< FP32 average of the masters; null: none
  std::uint64_t elems = 0;
  std::uint64_t first_element = 0;  ///< of the parameter
  simd::RuleScalars scalars;
  simd::UpdateOptions options;
  /// std::uint64_t: finite masters that became Inf, added up. Null: not counted.
  void* overflow_count = nullptr;
  /// LAMB's second phase: the float that lamb_trust() left. It takes the place of the scalars' own.
  const void* lr_trust = nullptr;
};

/// LAMB's first phase for one segment: moments, and the norms of its blocks.
struct DeviceLambMoments {
  simd::ConstElements grad;
  const void* param = nullptr;
  std::array<void*, 2> state{};
  std::uint64_t elems = 0;
  simd::LambScalars scalars;
  void* norms = nullptr;  ///< one simd::BlockNorms for each block of kReduceBlockElems elements
};

/// Between LAMB's phases, for one parameter.
struct DeviceLambTrust {
  const void* norms = nullptr;  ///< of all its blocks, in order
  std::uint64_t blocks = 0;
  double lr = 0.0;
  void* lr_trust = nullptr;  ///< out: float
};

/// Adds a micro-batch's gradient to an FP32 sum.
struct DeviceAccumulate {
  simd::ConstElements grad;
  void* sum_fp32 = nullptr;
  std::uint64_t elems = 0;
  bool first = false;  ///< the sum becomes the gradient, whatever it held
};

/// Device addresses of one segment's state, for the digest kernel. What the parameter lacks is
/// null.
struct DeviceDigest {
  const void* param = nullptr;
  std::array<const void*, 2> state{};
  const void* ema = nullptr;
  std::uint64_t elems = 0;
  std::uint64_t parameter = 0;      ///< id mixed into the digest
  std::uint64_t first_element = 0;  ///< of the parameter
  void* sum = nullptr;              ///< device std::uint64_t: the digest is added to it
};

class Backend {
 public:
  virtual ~Backend() = default;

  [[nodiscard]] virtual std::string_view name() const noexcept = 0;
  /// The system's number of the NUMA node that the device is attached to, if that is known.
  [[nodiscard]] virtual std::optional<std::uint32_t> numa_node() const noexcept { return {}; }
  /// Whether streams can wait for flags.
  [[nodiscard]] virtual bool stream_memory_ops() const noexcept = 0;

  /// Operations of one stream that may wait behind an unwritten flag; the call that queues one more
  /// may block until it is written.
  [[nodiscard]] virtual std::size_t queue_depth() const noexcept { return SIZE_MAX; }
  /// Why the device runs no kernels; "": it does. Without them reduce_gradient() and
  /// pack_gradient() work on the host, copies and fills as ever, and the other kernels throw
  /// Error{unsupported}.
  [[nodiscard]] virtual const std::string& why_no_kernels() const noexcept {
    static const std::string none;
    return none;
  }

  /// All waiting of caller-facing calls goes through this.
  [[nodiscard]] virtual core::Waiter& waiter() noexcept = 0;
  /// Not null in virtual time: background work must then run on this loop.
  [[nodiscard]] virtual core::VirtualLoop* virtual_loop() noexcept = 0;
  /// Virtual time: elements per second a host node updates at 28 bytes each; 0: instant.
  [[nodiscard]] virtual double host_elems_per_s(std::uint32_t node) const noexcept = 0;
  /// Virtual time: bytes per second that the machine's disk takes; 0: instant.
  [[nodiscard]] virtual double disk_bytes_per_s() const noexcept { return 0.0; }
  /// Nanoseconds since the device was made; virtual in virtual time.
  [[nodiscard]] virtual std::int64_t now_ns() const noexcept = 0;
  /// The first asynchronous failure, or "" while the device is sound. Never throws.
  [[nodiscard]] virtual std::string lost_reason() const = 0;
  [[nodiscard]] virtual bool lost() const noexcept = 0;

  /// For the executor of an engine on this device. Null: the device records nothing.
  [[nodiscard]] virtual core::SpanRecorder* recorder() noexcept { return nullptr; }

  // --- memory ---
  /// 256-byte aligned device memory. @throws Error{out_of_memory} saying asked, used and limit.
  [[nodiscard]] virtual void* allocate(std::size_t bytes) = 0;
  virtual void release(void* address) noexcept = 0;
  [[nodiscard]] virtual MemoryInfo memory() const = 0;
  /// @throws Error{invalid_argument} unless [address, address+bytes) lies in one live allocation of
  /// this device. For checking what the trainer hands in.
  virtual void check_range(const void* address, std::size_t bytes) const = 0;
  /// The same of memory that the engine writes.
  virtual void check_written_range(const void* address, std::size_t bytes) const {
    check_range(address, bytes);
  }

  /// Pins page-aligned host memory for copies across the link, in as many registrations as the
  /// device's ceilings ask for (device/host_registrations.hpp). @return false if the device refuses
  /// (a limit); the memory then stays pageable. @throws Error{device_failure} for any other
  /// failure.
  [[nodiscard]] bool register_host(std::span<std::byte> memory) {
    return registrations_.add(
        memory, [this](std::span<std::byte> chunk) { return register_chunk(chunk); },
        [this](std::span<std::byte> chunk) { unregister_chunk(chunk); });
  }
  /// Of memory as it was registered; anything else is left alone.
  void unregister_host(std::span<std::byte> memory) noexcept {
    registrations_.remove(memory, [this](std::span<std::byte> chunk) { unregister_chunk(chunk); });
  }

  // --- streams, events, flags ---
  [[nodiscard]] virtual NativeStream create_stream(const char* name) = 0;
  /// The same for short work that others wait for: where it could start at the same moment as that
  /// of other streams it goes first, if the device can do that.
  [[nodiscard]] virtual NativeStream create_urgent_stream(const char* name) {
    return create_stream(name);
  }
  /// Waits until the stream is empty (or the device is lost), then removes it. Afterwards no
  /// callback of an event last recorded on it runs; so hold no lock that callbacks take. Work that
  /// nothing can ever start loses the device in virtual time (in real time the call waits for
  /// ever).
  virtual void destroy_stream(NativeStream stream) noexcept = 0;
  [[nodiscard]] virtual Event create_event() = 0;
  /// One whose completion elapsed_us() can ask for; otherwise as create_event().
  [[nodiscard]] virtual Event create_timed_event() = 0;
  virtual void destroy_event(Event event) noexcept = 0;
  /// Queues a record: the event completes when `stream` reaches this point. Re-recording re-arms
  /// it.
  virtual void record(Event event, NativeStream stream) = 0;
  /// Queues a wait for the event's last record before this call; no record yet: no wait.
  virtual void wait_event(NativeStream stream, Event event) = 0;
  /// Runs `callback` once, after the event's last record before this call has completed; never
  /// inside this call. The callback is short and calls neither the device nor anything that waits;
  /// it may post to an executor and wake a Waiter. If the device is lost it is never called.
  virtual void notify(Event event, core::Callback callback) = 0;
  /// Whether the event's last record has completed.
  [[nodiscard]] virtual bool reached(Event event) const = 0;
  /// Microseconds of the device's clock from the completion of the last record of `from` to that of
  /// `to`, below 0 if `to` came first. @throws Error{invalid_argument} unless both are timed
  /// events, have been recorded, and are reached().
  [[nodiscard]] virtual double elapsed_us(Event from, Event to) const = 0;
  /// Blocks the calling thread until reached(event); counted as a host wait. `who` is for the
  /// deadlock report. @throws Error{device_failure} if the device is lost.
  virtual void synchronize(Event event, const char* who) = 0;

  /// For a stream that stands for the calling thread (NativeStream{0} of the host device): blocks
  /// until it has passed what is queued. Other streams: does nothing.
  virtual void finish_for_caller(NativeStream stream) { (void)stream; }

  /// Only with stream_memory_ops(). A new flag is 0.
  [[nodiscard]] virtual Flag create_flag() = 0;
  /// A stream that still waits for the flag loses the device.
  virtual void destroy_flag(Flag flag) noexcept = 0;
  /// Queues a wait until the flag is at least `value` (as unsigned 32-bit with wrap-around:
  /// int32(flag - value) >= 0).
  virtual void wait_flag(NativeStream stream, Flag flag, std::uint32_t value) = 0;
  /// Writes the flag now, from the host. Never blocks, never throws: an injected failure loses the
  /// device.
  virtual void write_flag(Flag flag, std::uint32_t value) noexcept = 0;

  // --- copies: queue; host memory must stay valid until the stream has passed them ---
  /// Host memory that reaches over several registrations is copied piece by piece.
  void copy_to_host(std::span<std::byte> host_dst, const void* device_src, NativeStream stream) {
    const auto* const src = static_cast<const std::byte*>(device_src);
    registrations_.for_each_piece(host_dst, [&](std::size_t from, std::size_t bytes) {
      queue_copy_to_host(host_dst.subspan(from, bytes), src + from, stream);
    });
  }
  void copy_to_device(void* device_dst, std::span<const std::byte> host_src, NativeStream stream) {
    auto* const dst = static_cast<std::byte*>(device_dst);
    registrations_.for_each_piece(host_src, [&](std::size_t from, std::size_t bytes) {
      queue_copy_to_device(dst + from, host_src.subspan(from, bytes), stream);
    });
  }
  virtual void copy_on_device(void* device_dst, const void* device_src, std::size_t bytes,
                              NativeStream stream) = 0;

  // --- kernels: queue ---
  /// `scalars`: device address of one GradientScalars.
  virtual void reduce_gradient(NativeStream stream, simd::ConstElements grad, std::uint64_t elems,
                               void* scalars) = 0;
  /// reduce_gradient() that copies the gradient to `packed` on the way, in its own format.
  virtual void pack_gradient(NativeStream stream, simd::ConstElements grad, std::uint64_t elems,
                             void* packed, void* scalars) = 0;
  virtual void unpack(NativeStream stream, const DeviceUnpack& arguments) = 0;
  virtual void accumulate(NativeStream stream, const DeviceAccumulate& arguments) = 0;
  virtual void update(NativeStream stream, const DeviceUpdate& arguments) = 0;
  virtual void lamb_moments(NativeStream stream, const DeviceLambMoments& arguments) = 0;
  virtual void lamb_trust(NativeStream stream, const DeviceLambTrust& arguments) = 0;
  virtual void digest(NativeStream stream, const DeviceDigest& arguments) = 0;
  /// `bits`: of one element of the format, in its low bits.
  virtual void fill(NativeStream stream, simd::Elements dst, std::uint64_t elems,
                    std::uint32_t bits) = 0;
  virtual void fill_zero(NativeStream stream, void* dst, std::size_t bytes) = 0;
  virtual void to_float(NativeStream stream, void* dst_fp32, simd::ConstElements src,
                        std::uint64_t elems) = 0;

 protected:
  // --- what a device adds to the calls of similar names above ---
  /// One registration. @return false if refused.
  [[nodiscard]] virtual bool register_chunk(std::span<std::byte> memory) = 0;
  virtual void unregister_chunk(std::span<std::byte> memory) noexcept = 0;
  /// Host memory of one registration, or of none.
  virtual void queue_copy_to_host(std::span<std::byte> host_dst, const void* device_src,
                                  NativeStream stream) = 0;
  virtual void queue_copy_to_device(void* device_dst, std::span<const std::byte> host_src,
                                    NativeStream stream) = 0;

 private:
  HostRegistrations registrations_;
};

}  // namespace outboard::device
