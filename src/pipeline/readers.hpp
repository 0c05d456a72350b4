// SPDX-License-Identifier: Apache-2.0
/// The caller's streams that may still read weights: uploads are ordered behind them.
#pragma once

#include <vector>

#include "device/backend.hpp"
#include "outboard/error.hpp"

namespace outboard::pipeline {

/// Streams seen in wait() or gradient_ready() since the step() before. A trainer has a handful.
class Readers {
 public:
  explicit Readers(device::Backend& backend) : backend_(backend) {}
  ~Readers() {
    for (const Reader& reader : readers_) backend_.destroy_event(reader.event);
  }
  Readers(const Readers&) = delete;
  Readers& operator=(const Readers&) = delete;

  /// @throws Error{invalid_argument} if there is no such stream.
  void seen(NativeStream stream) {
    for (Reader& reader : readers_) {
      if (reader.stream != stream) continue;
      if (!reader.active) backend_.record(reader.event, stream);  // refuses what is no stream
      reader.active = true;
      return;
    }
    for (Reader& reader : readers_) {
      if (reader.active) continue;  // of a stream not seen for a step: its place is free
      backend_.record(reader.event, stream);
      reader = {stream, reader.event, true};
      return;
    }
    readers_.push_back({stream, backend_.create_event(), false});
    try {
      backend_.record(readers_.back().event, stream);
    } catch (...) {
      backend_.destroy_event(readers_.back().event);
      readers_.pop_back();
      throw;
    }
    readers_.back().active = true;
  }
  /// Queues on `stream` a wait for all that the readers have queued so far.
  void order_behind(NativeStream stream) {
    for (Reader& reader : readers_) {
      if (!reader.active) continue;
      if (!record_again(reader)) continue;
      backend_.wait_event(stream, reader.event);
    }
  }
  /// A new step begins.
  void forget() noexcept {
    for (Reader& reader : readers_) reader.active = false;
  }

 private:
  struct Reader {
    NativeStream stream;
    device::Event event;
    bool active = false;
  };
  /// @return false if the trainer has destroyed the stream since: then it has run all it held.
  bool record_again(const Reader& reader) {
    try {
      backend_.record(reader.event, reader.stream);
      return true;
    } catch (const Error& failure) {
      if (failure.code() != ErrorCode::invalid_argument) throw;
      return false;
    }
  }

  device::Backend& backend_;
  std::vector<Reader> readers_;
};

}  // namespace outboard::pipeline
