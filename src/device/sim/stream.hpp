// SPDX-License-Identifier: Apache-2.0
/// The state of one stream, the same in both modes. Guarded by the backend's mutex.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/callback.hpp"
#include "device/sim/operation.hpp"
#include "device/sim/ring.hpp"

namespace outboard::sim {

/// What happens when a stream has completed `position` operations.
struct Arrival {
  enum class Kind : std::uint8_t { stream, callback, host };
  std::uint64_t position = 0;
  Kind kind = Kind::host;
  std::uint32_t stream = 0;        ///< Kind::stream: the one that waits
  core::Callback callback{};       ///< Kind::callback
  std::uint64_t failing_call = 0;  ///< Kind::callback: not 0: fails instead
};

/// A stream counts its operations. An event is a point (stream, position), so completion of any
/// number of events is one comparison, and nothing scans. Positions go on counting when a number is
/// used again, so that points of a destroyed stream count as passed.
struct Stream {
  virtual ~Stream() = default;

  [[nodiscard]] bool drained() const noexcept { return completed == queued && delivering == 0; }

  std::string name;
  std::uint32_t number = 0;
  std::uint32_t generation = 0;
  bool live = false;
  bool urgent = false;
  bool closing = false;  ///< somebody waits for drained()
  Ring<Operation> queue;
  Operation current;  ///< taken from the queue: running, or blocked at the head
  bool busy = false;  ///< `current` is in use
  std::uint64_t queued = 0;
  std::uint64_t completed = 0;
  std::vector<Arrival> arrivals;  ///< heap, smallest position on top
  std::uint64_t delivering = 0;   ///< callbacks due that have not returned yet
};

struct EventState {
  std::uint32_t stream = 0;
  std::uint64_t position = 0;     ///< of the last record; 0: none yet
  std::int64_t completed_ns = 0;  ///< when that record was reached
};

struct FlagState {
  std::uint32_t value = 0;
  std::vector<std::uint32_t> waiting;  ///< numbers of streams blocked on it
};

}  // namespace outboard::sim
