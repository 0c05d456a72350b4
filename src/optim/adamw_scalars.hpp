// SPDX-License-Identifier: Apache-2.0
/// The per-step scalars of AdamW, from hyper-parameters and a step count.
#pragma once

#include <cstdint>

#include "outboard/config.hpp"
#include "simd/adamw.hpp"

namespace outboard::optim {

/// base^exponent by repeated squaring, in double.
[[nodiscard]] double integer_power(double base, std::uint64_t exponent) noexcept;

/// Scalars for the update that makes a parameter's step count `step` (>= 1). Everything is computed
/// in double and rounded once. `coeff` multiplies the gradient: clip / (loss scale * accumulation).
[[nodiscard]] simd::AdamWScalars adamw_scalars(const AdamW& settings, std::uint64_t step,
                                               double coeff) noexcept;

}  // namespace outboard::optim
