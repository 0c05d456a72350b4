// SPDX-License-Identifier: Apache-2.0
/// The caller's streams that may still read weights: uploads are ordered behind them.
#pragma once

#include <vector>

#include "device/backend.hpp"

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

  void seen(NativeStream stream) {
    for (Reader& reader : readers_) {
      if (reader.stream != stream) continue;
      reader.active = true;
      return;
    }
    readers_.push_back({stream, backend_.create_event(), true});
  }
  /// Queues on `stream` a wait for all that the readers have queued so far.
  void order_behind(NativeStream stream) {
    for (Reader& reader : readers_) {
      if (!reader.active) continue;
      backend_.record(reader.event, reader.stream);
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
  device::Backend& backend_;
  std::vector<Reader> readers_;
};

}  // namespace outboard::pipeline
