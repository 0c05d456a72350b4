// SPDX-License-Identifier: Apache-2.0
#include "optim/loss_scaler.hpp"

#include <algorithm>

namespace outboard::optim {

LossScaler::LossScaler(const LossScaling& settings)
    : settings_(settings),
      scale_(settings.initial_scale),
      scale_before_row_(settings.initial_scale) {}

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
