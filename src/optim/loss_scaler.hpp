// SPDX-License-Identifier: Apache-2.0
/// Dynamic loss scaling (Micikevicius et al., "Mixed Precision Training", ICLR 2018).
#pragma once

#include <cstdint>

#include "outboard/config.hpp"

namespace outboard::optim {

/// Plain value; not thread-safe.
class LossScaler {
 public:
  explicit LossScaler(const LossScaling& settings);

  /// All that changes.
  struct State {
    double scale = 1.0;
    double scale_before_row = 1.0;
    std::uint32_t clean_steps = 0;
    std::uint32_t overflows_in_a_row = 0;
    std::uint32_t halvings_in_row = 0;
    bool operator==(const State&) const = default;
  };
  [[nodiscard]] State state() const noexcept;
  /// Goes on from there. Settings stay; with static scaling the scale does too.
  void restore(const State& state) noexcept;

  [[nodiscard]] double scale() const noexcept { return scale_; }
  [[nodiscard]] std::uint32_t clean_steps() const noexcept { return clean_steps_; }
  [[nodiscard]] std::uint32_t overflows_in_a_row() const noexcept { return overflows_in_a_row_; }
  /// The scale before the first overflow of the current or the last row.
  [[nodiscard]] double scale_before_row() const noexcept { return scale_before_row_; }
  /// How many overflows of that row found the scale above its floor, and halved it.
  [[nodiscard]] std::uint32_t halvings_in_row() const noexcept { return halvings_in_row_; }

  /// A step was applied: doubles the scale once `growth_interval` of them came in a row.
  void clean_step() noexcept;
  /// A step overflowed: halves the scale, down to the floor.
  /// @return true if the give-up limit is reached: `give_up_after` overflows in a row.
  bool overflow() noexcept;

 private:
  LossScaling settings_;
  double scale_;
  double scale_before_row_;
  std::uint32_t clean_steps_ = 0;
  std::uint32_t overflows_in_a_row_ = 0;
  std::uint32_t halvings_in_row_ = 0;
};

}  // namespace outboard::optim
