// SPDX-License-Identifier: Apache-2.0
/// Schedule::open: there is no barrier. Each parameter's scalars come to the host by themselves; a
/// bucket is updated when those of all its parameters are known. A parameter with a non-finite
/// gradient is left out alone.
///
/// Scalars are asked for when a bucket's last gradient is given: one small copy for all of its
/// parameters. A bucket that gets no gradient for some of its parameters is known to be complete
/// only in step(), which asks for what is left.
#pragma once

#include <cstdint>

#include "pipeline/bounce_ring.hpp"
#include "pipeline/flow.hpp"
#include "pipeline/readers.hpp"
#include "pipeline/step_gate.hpp"

namespace outboard::pipeline {

/// Who starts updates. Called with the lock held.
class OpenGateListener {
 public:
  /// The parameter takes part in this step.
  virtual void parameter_joins(std::uint32_t parameter) = 0;
  /// Some segments of the bucket are `in_update`; its update before has ended.
  virtual void bucket_opens(std::uint32_t bucket) = 0;

 protected:
  ~OpenGateListener() = default;
};

class OpenGate {
 public:
  OpenGate(Flow& flow, StepGate& gate, Readers& readers, OpenGateListener& listener);
  ~OpenGate();
  OpenGate(const OpenGate&) = delete;
  OpenGate& operator=(const OpenGate&) = delete;

  /// The parameter's gradient of this step, or its last micro-batch, is on its way: its norm is
  /// queued, with sums on the host it is taken as they land. Fixes its hyper-parameters and orders
  /// the refresh behind all readers. Returns at once.
  void gradient_given(std::uint32_t parameter, const optim::Group& group);
  /// A gradient has been added to the parameter's sum on the host.
  void sum_landed(std::uint32_t parameter) noexcept;

  /// For step(), when every parameter with a gradient was given: waits until all scalars are known
  /// and starts the updates that have not been. Does not wait for updates of this step.
  void finish(std::unique_lock<std::mutex>& lock);
  /// The next step begins.
  void reset() noexcept;

  [[nodiscard]] std::uint32_t updated() const noexcept { return updated_; }
  [[nodiscard]] std::uint32_t left_out() const noexcept { return left_out_; }

 private:
  void ask_for_completed(const Parameter& parameter);
  void ask_for_all();
  void ask(std::uint32_t first, std::uint32_t last);
  void known(std::uint32_t first, std::uint32_t last);
  void judge(std::uint32_t parameter);
  void try_open(std::uint32_t bucket);
  void open(std::uint32_t bucket);
  void spoil_stale_weights(std::uint32_t first, std::uint32_t last);
  static void scalars_landed(void* self, std::uint64_t range) noexcept;
  static void nothing(void* self, std::uint64_t range, std::uint32_t part) noexcept;
  static void known_on_executor(void* self, std::uint64_t range) noexcept;

  Flow& flow_;
  StepGate& gate_;
  Readers& readers_;
  OpenGateListener& listener_;
  device::Event normed_;        // what is asked for next
  std::uint32_t unknown_ = 0;   // given, and their scalars not known
  std::uint32_t updated_ = 0;   // parameters of this step
  std::uint32_t left_out_ = 0;  // of this step
};

}  // namespace outboard::pipeline
