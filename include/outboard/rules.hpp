// SPDX-License-Identifier: Apache-2.0
/// Update rules: plain structs of hyper-parameters with defaults. `validate()` throws
/// Error{invalid_config} that names the field, its value and what is allowed. Formulas in
/// evaluation order and subnormal thresholds: docs/numerics.md.
///
/// Every rule keeps an FP32 master weight; what else it keeps is said beside it, in bytes per
/// parameter with the master. An average of the weights (GroupOptions::ema_decay) is 4 more.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <variant>

#include "outboard/export.hpp"

namespace outboard {

/// Adam with decoupled weight decay: the decay is no part of the gradient. 12 bytes: exp_avg,
/// exp_avg_sq. Loshchilov & Hutter, "Decoupled Weight Decay Regularization", ICLR 2019.
struct OUTBOARD_API AdamW {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;  ///< added to the bias-corrected root; at least 1e-15
  double weight_decay = 0.0;

  void validate() const;
  bool operator==(const AdamW&) const = default;
};

/// Adam with L2 regularization: the decay is added to the gradient. 12 bytes: exp_avg, exp_avg_sq.
/// Kingma & Ba, "Adam: A Method for Stochastic Optimization", ICLR 2015.
struct OUTBOARD_API Adam {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;  ///< added to the bias-corrected root; at least 1e-15
  double weight_decay = 0.0;

  void validate() const;
  bool operator==(const Adam&) const = default;
};

/// Stochastic gradient descent with L2 regularization. 8 bytes: momentum_buffer, which starts as
/// the first gradient; 4 without momentum. Sutskever et al., "On the importance of initialization
/// and momentum in deep learning", ICML 2013 (Nesterov momentum in the form that looks ahead from
/// the gradient of the current weights).
struct OUTBOARD_API Sgd {
  double lr = 1e-3;
  double momentum = 0.0;  ///< 0: none, and no buffer; a group keeps having one or having none
  double dampening = 0.0;
  bool nesterov = false;  ///< needs momentum, and no dampening
  double weight_decay = 0.0;

  void validate() const;
  bool operator==(const Sgd&) const = default;
};

/// The sign of an interpolated momentum, with decoupled weight decay. 8 bytes: exp_avg. Chen et
/// al., "Symbolic Discovery of Optimization Algorithms", NeurIPS 2023.
struct OUTBOARD_API Lion {
  double lr = 1e-4;
  double beta1 = 0.9;   ///< of the step's interpolation
  double beta2 = 0.99;  ///< of the momentum
  double weight_decay = 0.0;

  void validate() const;
  bool operator==(const Lion&) const = default;
};

/// A sum of squared gradients for each weight, with L2 regularization. 8 bytes: sum. Duchi, Hazan &
/// Singer, "Adaptive Subgradient Methods for Online Learning and Stochastic Optimization", JMLR
/// 2011.
struct OUTBOARD_API Adagrad {
  double lr = 1e-2;
  double lr_decay = 0.0;             ///< step t uses lr / (1 + (t - 1) * lr_decay)
  double initial_accumulator = 0.0;  ///< the sum at commit()
  double eps = 1e-10;                ///< added to the root; at least 1e-15
  double weight_decay = 0.0;

  void validate() const;
  bool operator==(const Adagrad&) const = default;
};

/// Adam's direction, decay included, scaled for each parameter by the norm of its weights over the
/// norm of that direction. 12 bytes: exp_avg, exp_avg_sq. You et al., "Large Batch Optimization for
/// Deep Learning: Training BERT in 76 minutes", ICLR 2020.
struct OUTBOARD_API Lamb {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-6;  ///< added to the bias-corrected root; at least 1e-15
  double weight_decay = 0.0;

  void validate() const;
  bool operator==(const Lamb&) const = default;
};

using Rule = std::variant<AdamW, Adam, Sgd, Lion, Adagrad, Lamb>;

/// How a master becomes a 16-bit weight (an f32 weight is the master itself).
enum class Rounding : std::uint8_t {
  nearest,     ///< to nearest, ties to even
  stochastic,  ///< up or down with the probability that makes the mean right; a function of
               ///< (seed, parameter, step count, element) alone
};

/// What a group has beside its rule. Fixed when the group is made.
struct OUTBOARD_API GroupOptions {
  Rounding rounding = Rounding::nearest;
  std::uint64_t seed = 0;  ///< of stochastic rounding
  /// Keeps an FP32 average of the masters beside them, ema = decay * ema + (1 - decay) * master
  /// after each update; it starts as the master. None: no average, no memory for one.
  std::optional<double> ema_decay{};

  void validate() const;
  bool operator==(const GroupOptions&) const = default;
};

/// "AdamW", "Adam", "Sgd", "Lion", "Adagrad", "Lamb".
[[nodiscard]] OUTBOARD_API std::string_view rule_name(const Rule& rule) noexcept;

}  // namespace outboard
