// SPDX-License-Identifier: Apache-2.0
/// The only barrier of a step: waits once for the gradients' scalars, then decides whether the step
/// is applied, how it is clipped, and what becomes of the loss scale. With an open gate, which is
/// no barrier, the same decision for each parameter by itself, and the report of the whole step.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "memory/pinned_region.hpp"
#include "optim/loss_scaler.hpp"
#include "optim/step_decision.hpp"
#include "pipeline/flow.hpp"

namespace outboard::pipeline {

struct GateSettings {
  double max_grad_norm = 0.0;
  std::uint32_t accumulation = 1;
  LossScaling loss_scaling;
  double gradient_divisor = 1.0;  ///< what else gradients were multiplied by
};

class StepGate {
 public:
  /// `scalars`: device memory of one GradientScalars for each parameter, then one std::uint64_t for
  /// each, the count of weights that overflowed in updates on the device. `host`: pinned memory for
  /// both.
  StepGate(Flow& flow, const GateSettings& settings, const void* scalars,
           std::span<std::byte> host);
  ~StepGate();
  StepGate(const StepGate&) = delete;
  StepGate& operator=(const StepGate&) = delete;

  /// The tables lie elsewhere now, with the same counts. Between steps.
  void set_scalars(const void* scalars, std::span<std::byte> host) noexcept {
    scalars_ = scalars;
    host_ = host;
  }
  /// From now on the overflow counts come along: the device updates, or did.
  void fetch_overflow_counts() noexcept { overflow_counts_ = true; }
  [[nodiscard]] std::uint32_t accumulation() const noexcept { return settings_.accumulation; }
  void set_accumulation(std::uint32_t micro_batches) noexcept {
    settings_.accumulation = micro_batches;
  }
  [[nodiscard]] double loss_scale() const noexcept { return scaler_.scale(); }
  void set_max_grad_norm(double limit) noexcept { settings_.max_grad_norm = limit; }
  void set_gradient_divisor(double divisor) noexcept { settings_.gradient_divisor = divisor; }
  [[nodiscard]] optim::LossScaler::State loss_scale_state() const noexcept {
    return scaler_.state();
  }
  void restore_loss_scale(const optim::LossScaler::State& state) noexcept {
    scaler_.restore(state);
  }

  struct Verdict {
    bool apply = false;
    bool give_up = false;  ///< the loss scale has overflowed too often: see give_up_error()
    double coeff = 1.0;
    std::uint32_t skips_before = 0;  ///< steps skipped in a row just before this one
    // Open gate:
    std::uint32_t updated = 0, left_out = 0;  ///< parameters
  };
  /// Waits for the scalars (the lock is released meanwhile) and fills in the result: norm, clip,
  /// loss scales, the non-finite element. Applies the outcome to the loss scale.
  /// With Accumulate::host the scalars of a host parameter come from its sum, which is complete.
  Verdict decide(std::unique_lock<std::mutex>& lock, StepResult& result);
  // Open gate.
  /// Queues the copy of the scalars of parameters [first, first + count) to the host.
  void queue_fetch(std::uint32_t first, std::uint32_t count, NativeStream stream);
  /// What an update multiplies its gradient by.
  [[nodiscard]] double open_coeff() const noexcept;
  /// Whether a parameter whose scalars are on the host is left out: a gradient that is not finite,
  /// or whose own norm is 2^63 or more.
  [[nodiscard]] bool overflowed(std::uint32_t parameter) const;
  /// Reports the step, all of whose scalars are on the host: outcome, norm, the non-finite element.
  /// A step that leaves something out counts towards LossScaling::give_up_after.
  Verdict conclude(StepResult& result, std::uint32_t updated, std::uint32_t left_out);
  /// Queues the copy of the counts of weights that the device made Inf, unless the last one is
  /// still on its way.
  void queue_overflow_counts(NativeStream stream);
  [[nodiscard]] bool overflow_counts_there() const { return flow_.backend.reached(fetched_); }

  /// What the log hears of this step: that a row of skipped steps begins, and why, or that one of
  /// several has ended, and with which loss scale. Empty: nothing.
  [[nodiscard]] std::string news(const Verdict& verdict, const StepResult& result) const;
  [[nodiscard]] Error give_up_error(const StepResult& result) const;
  /// Weights that became Inf in updates on the device, in total, as of the last gate.
  [[nodiscard]] std::uint64_t device_overflows(std::uint32_t parameter) const;

 private:
  void queue_copy(std::size_t from, std::size_t bytes, NativeStream stream);
  void fetch_scalars(std::unique_lock<std::mutex>& lock);
  [[nodiscard]] double divisor() const noexcept {
    return scaler_.scale() * settings_.accumulation * settings_.gradient_divisor;
  }
  [[nodiscard]] std::string cause(const StepResult& result) const;
  [[nodiscard]] device::GradientScalars scalars_of(std::uint32_t parameter) const;
  [[nodiscard]] optim::GradientTotals totals(StepResult& result) const;
  /// False if gradients are taken as they are: a fixed loss scale of 1.
  [[nodiscard]] bool scaling() const noexcept;
  [[nodiscard]] std::string scale_after_skip(const StepResult& result) const;
  [[nodiscard]] std::string scale_history() const;

  Flow& flow_;
  GateSettings settings_;
  optim::LossScaler scaler_;
  const void* scalars_;
  std::span<std::byte> host_;
  bool overflow_counts_ = false;
  device::Event fetched_;
};

}  // namespace outboard::pipeline
