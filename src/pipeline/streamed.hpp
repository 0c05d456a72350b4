// SPDX-License-Identifier: Apache-2.0
/// The way of device-streamed buckets: their state lies on the host, as for updates there. A step
/// sends each through a ring of device buffers, updates it with the rule's device kernels, gradient
/// and weight used where they are, and sends it back. State comes in and goes out on streams of its
/// own; the updates run where those of resident buckets run, behind them.
///
/// While a buffer has no work of this step, state of the next one comes into it. The host holds the
/// same bits then, so whoever reads it there need not care; whoever writes it calls forget().
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "pipeline/flow.hpp"
#include "pipeline/resident.hpp"
#include "plan/cost_model.hpp"

namespace outboard::pipeline {

class Streamed {
 public:
  /// Allocates nothing yet. `resident` keeps the sums of gradients, and must outlive this.
  Streamed(Flow& flow, Resident& resident);
  /// Waits for copies in flight.
  ~Streamed();
  Streamed(const Streamed&) = delete;
  Streamed& operator=(const Streamed&) = delete;

  /// Makes buffers for the buckets that are streamed now, and what else their steps need. What is
  /// held already stays if it is large enough; else it is kept beside, until settle() or go_back().
  /// No copy is in flight.
  void allocate();
  /// What was held before allocate() is not needed any more.
  void settle() noexcept;
  /// What there is, to go back to when a later commit() fails.
  struct Mark {
    const void* buffers = nullptr;
    std::size_t pinned = 0;  // arenas
  };
  [[nodiscard]] Mark mark() const noexcept { return {memory_.address, pinned_.size()}; }
  /// `buckets`: how many the engine has again. Their homes are as they were at the mark.
  void go_back(const Mark& mark, std::size_t buckets) noexcept;
  /// Gives buffers and registrations back. Nothing of them may be in use: see
  /// order_behind_copies().
  void release() noexcept;
  /// Registers the state on the host that is not, once its pages are there, if any is streamed.
  /// @return "" or a warning: the device has refused some of it.
  [[nodiscard]] std::string pin();

  /// Queues the update of every streamed part of parameters that are `in_update`, as
  /// Resident::update(), and behind it. Does not wait, unless state is not pinned: a device may
  /// then copy before it returns.
  void update(std::byte* overflow_counts);
  /// The same for one bucket, for an open gate: segments that are `in_update`.
  void update_bucket(std::uint32_t bucket, std::byte* overflow_counts);
  /// Makes `stream` wait for the last update queued.
  void order_behind_updates(NativeStream stream);
  /// Makes `stream` wait until no copy reads or writes the host's state.
  void order_behind_copies(NativeStream stream);
  /// The host's state is about to change; no copy is in flight. What came in early comes in again.
  void forget() noexcept;

  /// Of all buffers, for these homes.
  [[nodiscard]] std::size_t needed_bytes(const std::vector<plan::Home>& homes) const;
  [[nodiscard]] std::span<const std::byte> held() const noexcept {
    return {memory_.address, memory_.bytes};
  }
  /// Whether the arena that starts at this address is registered.
  [[nodiscard]] bool pinned(const void* arena) const noexcept;

 private:
  static constexpr std::uint32_t kNone = UINT32_MAX;
  struct Buffer {
    std::uint32_t bucket = kNone;       // whose state it holds, or is about to
    std::uint32_t left_bucket = kNone;  // whose state left it last
    device::Event here;
    device::Event left;
  };

  struct Memory {
    std::byte* address = nullptr;
    std::size_t bytes = 0;
  };

  void create_streams_and_events();
  void give_back(Memory& memory) noexcept;
  [[nodiscard]] std::size_t streams(std::uint32_t bucket) const {
    return flow_.generation(bucket).streams.streams();
  }
  [[nodiscard]] std::size_t stream_bytes(std::uint32_t bucket) const;
  [[nodiscard]] Buffer* holding(std::uint32_t bucket) noexcept;
  [[nodiscard]] std::byte* stream_address(const Buffer& buffer, std::size_t stream) const noexcept;
  template <class Next>
  void fill_ring(Next next);
  void fetch(Buffer& buffer, std::uint32_t bucket);
  [[nodiscard]] Buffer& buffer_of(std::uint32_t bucket);
  void update_in(Buffer& buffer, std::byte* overflow_counts);
  void send_back(Buffer& buffer);
  [[nodiscard]] std::uint32_t next_of_step();
  [[nodiscard]] std::uint32_t next_in_order();
  [[nodiscard]] std::uint32_t next_before(std::uint32_t bucket);

  Flow& flow_;
  Resident& resident_;
  std::vector<std::uint32_t> buckets_;  // that are streamed, in forward order
  std::array<Buffer, plan::kStreamBuffers> ring_;
  std::size_t next_ = 0;  // into buckets_, those of the next step behind those of this
  Memory memory_;         // the buffers, each as large
  Memory before_;         // what allocate() has replaced
  std::vector<std::span<std::byte>> pinned_;
  NativeStream in_{}, out_{};
  device::Event updated_;
};

}  // namespace outboard::pipeline
