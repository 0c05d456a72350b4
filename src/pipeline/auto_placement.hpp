// SPDX-License-Identifier: Apache-2.0
/// Placement::automatic: watches steps, and says when the planner should look again and where each
/// bucket is to live. Moves nothing itself.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "pipeline/flow.hpp"
#include "pipeline/step_timer.hpp"
#include "plan/simulate.hpp"

namespace outboard::pipeline {

class AutoPlacement {
 public:
  /// `rates`: of link and device; those of the nodes are found in the steps.
  /// `ring_slots`: that gradients pass through on their way to sums on the host.
  AutoPlacement(Flow& flow, plan::StepSchedule schedule, plan::Rates rates, std::size_t ring_slots);

  [[nodiscard]] StepTimer& timer() noexcept { return timer_; }

  /// In step(), with gradients pending.
  void step_ends();
  /// Behind it, with no update and no addition running.
  void nodes_idle();
  void applied();
  void skipped() noexcept { applied_in_a_row_ = 0; }
  /// The gradients of this step were dropped, or homes have changed: what was timed is no step.
  void restarted() noexcept {
    applied_in_a_row_ = 0;
    sampled_ = false;
    timer_.restart();
  }
  /// Whether choose() may have news, after applied(): two steps have been seen since commit() or
  /// the last move, and none was planned yet or predictions have been wrong for a while.
  [[nodiscard]] bool due() const noexcept;

  struct Choice {
    std::vector<plan::Home> homes;
    double step_us = 0.0;  ///< as simulated, on the engine's own nodes
    double now_us = 0.0;   ///< the same for the buckets' present homes
    double host_us = 0.0;  ///< the same for all of them on the host
    bool worth_a_move = false;
  };
  /// nullopt: the steps could not be timed. `budget_bytes`: of the device. Takes milliseconds.
  [[nodiscard]] std::optional<Choice> choose(std::uint64_t budget_bytes);
  /// The buckets' homes are as chosen, or stay what they are.
  void moved(const Choice& choice);
  void stayed(const Choice& choice);
  /// There was no memory: all of them may be on the host now.
  void failed(const Choice& choice);

  [[nodiscard]] double predicted_us() const noexcept { return predicted_us_; }
  [[nodiscard]] double measured_us() const noexcept { return measured_us_; }

 private:
  [[nodiscard]] plan::ModelLayout layout() const;
  [[nodiscard]] plan::Rates rates_in_use() const;
  [[nodiscard]] double predict(const plan::StepModel& model,
                               const std::vector<plan::Home>& homes) const;

  Flow& flow_;
  plan::StepSchedule schedule_;
  plan::Rates rates_;
  StepTimer timer_;
  std::vector<std::uint64_t> cost_;       // of each bucket's update, in elements of AdamW
  std::vector<std::uint64_t> node_cost_;  // of the last update applied
  std::vector<std::int64_t> busy_ns_;     // of each node at the last nodes_idle()
  std::uint32_t ring_slots_;
  std::uint32_t applied_in_a_row_ = 0;
  bool planned_ = false;
  bool sampled_ = false;  // measured_us_ is of the step before
  double measured_us_ = 0.0;
  double predicted_us_ = 0.0;
  std::uint32_t off_ = 0;  // steps in a row that the prediction missed
  std::uint32_t patience_;
};

}  // namespace outboard::pipeline
