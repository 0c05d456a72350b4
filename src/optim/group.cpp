// SPDX-License-Identifier: Apache-2.0
#include "optim/group.hpp"

namespace outboard::optim {

std::string refusal_to_replace(const Rule& now, const Rule& next) {
  if (now.index() != next.index()) {
    return "is " + std::string(rule_name(now)) + " and cannot become " +
           std::string(rule_name(next)) + "; a group keeps its rule, so make another group";
  }
  const auto* sgd = std::get_if<Sgd>(&now);
  if (sgd != nullptr && (sgd->momentum > 0.0) != (std::get<Sgd>(next).momentum > 0.0)) {
    return std::string("is Sgd ") + (sgd->momentum > 0.0 ? "with" : "without") +
           " momentum and stays so: Sgd::momentum above 0 needs a buffer that 0 has not; make "
           "another group";
  }
  return "";
}

bool same_but_for_lr(const Rule& a, const Rule& b) noexcept {
  if (a.index() != b.index()) return false;
  return std::visit(
      [&](auto kind) {
        const auto& other = std::get<decltype(kind)>(b);
        kind.lr = other.lr;
        return kind == other;
      },
      a);
}

}  // namespace outboard::optim
