// SPDX-License-Identifier: Apache-2.0
/// The per-step scalars of every rule, from hyper-parameters and a step count.
#pragma once

#include <cstdint>

#include "optim/group.hpp"
#include "simd/rules.hpp"
#include "simd/update.hpp"

namespace outboard::optim {

/// base^exponent by repeated squaring, in double.
[[nodiscard]] double integer_power(double base, std::uint64_t exponent) noexcept;

/// Scalars for the update that makes a parameter's step count `step` (>= 1). Everything is computed
/// in double and rounded once. `coeff` multiplies the gradient: clip / (loss scale * accumulation).
[[nodiscard]] simd::AdamWScalars scalars(const AdamW& rule, std::uint64_t step,
                                         double coeff) noexcept;
[[nodiscard]] simd::AdamScalars scalars(const Adam& rule, std::uint64_t step,
                                        double coeff) noexcept;
[[nodiscard]] simd::SgdScalars scalars(const Sgd& rule, std::uint64_t step, double coeff) noexcept;
[[nodiscard]] simd::LionScalars scalars(const Lion& rule, std::uint64_t step,
                                        double coeff) noexcept;
[[nodiscard]] simd::AdagradScalars scalars(const Adagrad& rule, std::uint64_t step,
                                           double coeff) noexcept;
/// Without `lr_trust`, which the norms of the first phase make.
[[nodiscard]] simd::LambScalars scalars(const Lamb& rule, std::uint64_t step,
                                        double coeff) noexcept;
[[nodiscard]] simd::RuleScalars scalars(const Rule& rule, std::uint64_t step,
                                        double coeff) noexcept;

/// What else the kernel needs to know. `parameter`: registration index; `step`: as above.
[[nodiscard]] simd::UpdateOptions update_options(const GroupOptions& options,
                                                 std::uint64_t parameter,
                                                 std::uint64_t step) noexcept;

/// What the rule's first stream starts with at commit().
[[nodiscard]] float initial_state(const Rule& rule) noexcept;

}  // namespace outboard::optim
