// SPDX-License-Identifier: Apache-2.0
/// Every rule, each with settings that make all of its terms count, and every dtype.
#pragma once

#include <ostream>
#include <string>
#include <variant>
#include <vector>

#include "outboard/outboard.hpp"
#include "support/tiny_trainer.hpp"

namespace outboard::testing {

struct NamedRule {
  std::string name;
  TinyRule group;
};

inline std::ostream& operator<<(std::ostream& out, const NamedRule& rule) {
  return out << rule.name;
}

inline std::vector<NamedRule> every_rule() {
  const Sgd nesterov{.lr = 1e-2, .momentum = 0.9, .nesterov = true, .weight_decay = 0.1};
  return {{"adamw", {AdamW{.lr = 1e-2, .weight_decay = 0.1}}},
          {"adam", {Adam{.lr = 1e-2, .beta2 = 0.95, .weight_decay = 0.1}}},
          {"sgd", {Sgd{.lr = 1e-2, .weight_decay = 0.1}}},
          {"sgd_momentum", {Sgd{.lr = 1e-2, .momentum = 0.9, .dampening = 0.1}}},
          {"sgd_nesterov", {nesterov}},
          {"lion", {Lion{.lr = 1e-3, .weight_decay = 0.1}}},
          {"adagrad", {Adagrad{.lr = 0.1, .lr_decay = 0.1, .initial_accumulator = 0.1}}},
          {"lamb", {Lamb{.lr = 1e-2, .weight_decay = 0.1}}}};
}

/// Those whose state may be there: Lamb's is not streamed.
inline std::vector<NamedRule> every_rule(Placement placement) {
  std::vector<NamedRule> rules = every_rule();
  if (placement == Placement::device_streamed) {
    std::erase_if(
        rules, [](const NamedRule& rule) { return std::holds_alternative<Lamb>(rule.group.rule); });
  }
  return rules;
}

/// Whether some group's state cannot be streamed through the device.
inline bool has_lamb(const TinyOptions& options) {
  for (const TinyRule& group : options.rules) {
    if (std::holds_alternative<Lamb>(group.rule)) return true;
  }
  return false;
}

/// Ways to keep and to round that a group of any rule can have.
inline GroupOptions random_with_average() {
  return {.rounding = Rounding::stochastic, .seed = 7, .ema_decay = 0.9};
}

inline constexpr DType kEveryDType[] = {DType::f16, DType::bf16, DType::f32};

}  // namespace outboard::testing
