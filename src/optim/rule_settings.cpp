// SPDX-License-Identifier: Apache-2.0
// Checks of every hyper-parameter, each named with its value and what is allowed. They run at each
// set_group(), so a setting that is right must cost no allocation.
#include <cfloat>
#include <cmath>
#include <string>

#include "core/show_number.hpp"
#include "outboard/error.hpp"
#include "outboard/rules.hpp"

namespace outboard {
namespace {

constexpr double kLargestFloat = FLT_MAX;

/// The hyper-parameters of one rule, by name.
class Check {
 public:
  explicit Check(const char* rule) : rule_(rule) {}

  void require(bool holds, const char* field, double value, const char* allowed) const {
    if (holds) return;
    throw Error(ErrorCode::invalid_config, std::string(rule_) + "::" + field + " is " +
                                               core::show_number(value) + "; allowed: " + allowed);
  }
  void lr(double value) const {
    require(std::isfinite(value) && value >= 0.0, "lr", value, "finite and at least 0");
    require(value <= kLargestFloat, "lr", value, "at most 3.4e38, the largest float");
  }
  /// A factor of an exponential average.
  void beta(const char* field, double value) const {
    require(value >= 0.0 && value < 1.0, field, value, "in [0, 1)");
  }
  void adam_lr(double value, double beta1) const {
    require(std::isfinite(value) && value >= 0.0, "lr", value, "finite and at least 0");
    require(value / (1.0 - beta1) <= kLargestFloat, "lr", value,
            "lr / (1 - beta1) at most 3.4e38, the largest float");
  }
  // Below 1e-15 a flushed square would be divided by almost nothing.
  void eps(double value) const {
    require(std::isfinite(value) && value >= 1e-15, "eps", value, "finite and at least 1e-15");
    require(value <= kLargestFloat, "eps", value, "at most 3.4e38, the largest float");
  }
  /// `factor`: what the rule multiplies the decay by before it rounds to float.
  void weight_decay(double value, double factor = 1.0) const {
    require(std::isfinite(value) && value >= 0.0, "weight_decay", value, "finite and at least 0");
    require(value * factor <= kLargestFloat, "weight_decay", value,
            factor == 1.0 ? "at most 3.4e38, the largest float"
                          : "lr * weight_decay at most 3.4e38, the largest float");
  }

 private:
  const char* rule_;
};

template <class AnyAdam>
void check_adam(const Check& check, const AnyAdam& settings) {
  check.beta("beta1", settings.beta1);
  check.beta("beta2", settings.beta2);
  check.adam_lr(settings.lr, settings.beta1);
  check.eps(settings.eps);
}

}  // namespace

void AdamW::validate() const {
  const Check check("AdamW");
  check_adam(check, *this);
  check.weight_decay(weight_decay, lr);
}

void Adam::validate() const {
  const Check check("Adam");
  check_adam(check, *this);
  check.weight_decay(weight_decay);
}

void Sgd::validate() const {
  const Check check("Sgd");
  check.lr(lr);
  check.require(momentum >= 0.0 && momentum < 1.0, "momentum", momentum, "in [0, 1)");
  check.require(dampening >= 0.0 && dampening <= 1.0, "dampening", dampening, "in [0, 1]");
  check.require(!nesterov || (momentum > 0.0 && dampening == 0.0), "nesterov", 1.0,
                "with momentum above 0 and dampening 0");
  check.weight_decay(weight_decay);
}

void Lion::validate() const {
  const Check check("Lion");
  check.lr(lr);
  check.beta("beta1", beta1);
  check.beta("beta2", beta2);
  check.weight_decay(weight_decay, lr);
}

void Adagrad::validate() const {
  const Check check("Adagrad");
  check.lr(lr);
  check.require(std::isfinite(lr_decay) && lr_decay >= 0.0, "lr_decay", lr_decay,
                "finite and at least 0");
  check.require(initial_accumulator >= 0.0 && initial_accumulator <= kLargestFloat,
                "initial_accumulator", initial_accumulator, "in [0, 3.4e38], the largest float");
  check.eps(eps);
  check.weight_decay(weight_decay);
}

void Lamb::validate() const {
  const Check check("Lamb");
  check_adam(check, *this);
  check.weight_decay(weight_decay);
}

void GroupOptions::validate() const {
  const Check check("GroupOptions");
  check.require(rounding == Rounding::nearest || rounding == Rounding::stochastic, "rounding",
                static_cast<double>(rounding), "Rounding::nearest or Rounding::stochastic");
  if (ema_decay) check.beta("ema_decay", *ema_decay);
}

std::string_view rule_name(const Rule& rule) noexcept {
  constexpr std::string_view kNames[] = {"AdamW", "Adam", "Sgd", "Lion", "Adagrad", "Lamb"};
  static_assert(std::size(kNames) == std::variant_size_v<Rule>);
  return kNames[rule.index()];
}

}  // namespace outboard
