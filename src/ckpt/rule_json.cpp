// SPDX-License-Identifier: Apache-2.0
#include "ckpt/rule_json.hpp"

#include <type_traits>

#include "ckpt/checksum.hpp"

namespace outboard::ckpt {
namespace {

// use(name, field) for every hyper-parameter.
template <class Kind, class Use>
void each_field(Kind& kind, Use use) {
  using Plain = std::remove_const_t<Kind>;
  use("lr", kind.lr);
  if constexpr (requires { kind.beta1; }) {
    use("beta1", kind.beta1);
    use("beta2", kind.beta2);
  }
  if constexpr (requires { kind.eps; }) use("eps", kind.eps);
  if constexpr (std::is_same_v<Plain, Sgd>) {
    use("momentum", kind.momentum);
    use("dampening", kind.dampening);
    use("nesterov", kind.nesterov);
  }
  if constexpr (std::is_same_v<Plain, Adagrad>) {
    use("lr_decay", kind.lr_decay);
    use("initial_accumulator", kind.initial_accumulator);
  }
  use("weight_decay", kind.weight_decay);
}

template <std::size_t... I>
Rule rule_named(const JsonRef& name, std::index_sequence<I...>) {
  const std::string text = name.text();
  Rule rule;
  const auto is = [&](Rule candidate) {
    if (rule_name(candidate) != text) return false;
    rule = candidate;
    return true;
  };
  if (!(is(Rule(std::in_place_index<I>)) || ...)) {
    name.place().refuse("is '" + text + "', which is no rule of this build");
  }
  return rule;
}

const char* rounding_name(Rounding rounding) {
  return rounding == Rounding::stochastic ? "stochastic" : "nearest";
}

Rounding rounding_named(const JsonRef& json) {
  const std::string text = json.text();
  for (const Rounding rounding : {Rounding::nearest, Rounding::stochastic}) {
    if (text == rounding_name(rounding)) return rounding;
  }
  json.place().refuse("is '" + text + "' and may be 'nearest' or 'stochastic'");
}

}  // namespace

nlohmann::ordered_json group_to_json(const optim::Group& group) {
  nlohmann::ordered_json json;
  json["rule"] = rule_name(group.rule);
  std::visit(
      [&](const auto& kind) {
        each_field(kind, [&](const char* name, const auto& field) { json[name] = field; });
      },
      group.rule);
  json["rounding"] = rounding_name(group.options.rounding);
  json["seed"] = to_hex(group.options.seed);
  if (group.options.ema_decay) json["ema_decay"] = *group.options.ema_decay;
  return json;
}

optim::Group group_from_json(const JsonRef& json) {
  optim::Group group;
  group.rule = rule_named(json.at("rule"), std::make_index_sequence<std::variant_size_v<Rule>>());
  const auto read = [&](const char* name, auto& field) {
    if constexpr (std::is_same_v<std::decay_t<decltype(field)>, bool>) {
      field = json.at(name).flag();
    } else {
      field = json.at(name).number();
    }
  };
  std::visit([&](auto& kind) { each_field(kind, read); }, group.rule);
  group.options.rounding = rounding_named(json.at("rounding"));
  group.options.seed = json.at("seed").bits();
  if (json.has("ema_decay")) group.options.ema_decay = json.at("ema_decay").number();
  try {
    std::visit([](const auto& kind) { kind.validate(); }, group.rule);
    group.options.validate();
  } catch (const Error& failure) {
    json.place().refuse(std::string("has a value out of range: ") + failure.what());
  }
  return group;
}

}  // namespace outboard::ckpt
