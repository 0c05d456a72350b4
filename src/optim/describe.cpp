// SPDX-License-Identifier: Apache-2.0
#include "optim/describe.hpp"

#include "core/show_number.hpp"

namespace outboard::optim {

namespace {

using core::show_number;

std::string item(const char* name, double value) {
  return std::string(", ") + name + " " + show_number(value);
}
template <class AnyRule>
std::string betas(const AnyRule& rule) {
  return item("betas", rule.beta1) + " and " + show_number(rule.beta2);
}
std::string decoupled(double decay) {
  return ", decoupled weight decay " + show_number(decay);
}
/// L2: a part of the gradient, and so of all that is made of it.
std::string coupled(double decay) {
  return ", weight decay in the gradient " + show_number(decay);
}

std::string settings(const AdamW& rule) {
  return decoupled(rule.weight_decay) + item("lr", rule.lr) + betas(rule) + item("eps", rule.eps);
}
std::string settings(const Adam& rule) {
  return coupled(rule.weight_decay) + item("lr", rule.lr) + betas(rule) + item("eps", rule.eps);
}
std::string settings(const Sgd& rule) {
  return coupled(rule.weight_decay) + item("lr", rule.lr) + item("momentum", rule.momentum) +
         item("dampening", rule.dampening) + (rule.nesterov ? ", nesterov" : "");
}
std::string settings(const Lion& rule) {
  return decoupled(rule.weight_decay) + item("lr", rule.lr) + betas(rule);
}
std::string settings(const Adagrad& rule) {
  return coupled(rule.weight_decay) + item("lr", rule.lr) + item("lr_decay", rule.lr_decay) +
         item("initial_accumulator", rule.initial_accumulator) + item("eps", rule.eps);
}
std::string settings(const Lamb& rule) {
  return item("weight decay inside the trust ratio", rule.weight_decay) + item("lr", rule.lr) +
         betas(rule) + item("eps", rule.eps);
}

}  // namespace

std::string describe(const Rule& rule) {
  const auto own = [](const auto& kind) { return settings(kind); };
  return std::string(rule_name(rule)) + std::visit(own, rule);
}

std::string describe(const Group& group) {
  std::string text = describe(group.rule);
  if (group.options.rounding == Rounding::stochastic) {
    text += ", stochastic rounding with seed " + std::to_string(group.options.seed);
  }
  if (group.options.ema_decay) text += item("ema_decay", *group.options.ema_decay);
  return text;
}

}  // namespace outboard::optim
