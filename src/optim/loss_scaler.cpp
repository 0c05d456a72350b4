// SPDX-License-Identifier: Apache-2.0
#include "optim/loss_scaler.hpp"

#include <algorithm>

namespace outboard::optim {

LossScaler::LossScaler(const LossScaling& settings)
    : settings_(settings),
      scale_(settings.initial_scale),
      scale_before_row_(settings.initial_scale) {}

LossScaler::State LossScaler::state() const noexcept {
  return {scale_, scale_before_row_, clean_steps_, overflows_in_a_row_, halvings_in_row_};
}

void LossScaler::restore(const State& state) noexcept {
  if (settings_.dynamic) scale_ = std::clamp(state.scale, settings_.min_scale, settings_.max_scale);
  scale_before_row_ = state.scale_before_row;
  clean_steps_ = state.clean_steps;
  overflows_in_a_row_ = state.overflows_in_a_row;
  halvings_in_row_ = state.halvings_in_row;
}

void LossScaler::clean_step() noexcept {
  overflows_in_a_row_ = 0;
  if (!settings_.dynamic || ++clean_steps_ < settings_.growth_interval) return;
  clean_steps_ = 0;
  scale_ = std::min(scale_ * 2.0, settings_.max_scale);
}

bool LossScaler::overflow() noexcept {
  clean_steps_ = 0;
  if (overflows_in_a_row_++ == 0) {
    scale_before_row_ = scale_;
    halvings_in_row_ = 0;
  }
  if (settings_.dynamic && scale_ > settings_.min_scale) {
    scale_ *= 0.5;  // both are powers of two: never below the floor
    halvings_in_row_ += 1;
  }
  return overflows_in_a_row_ >= settings_.give_up_after;
}

}  // namespace outboard::optim
