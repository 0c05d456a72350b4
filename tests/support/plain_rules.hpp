// SPDX-License-Identifier: Apache-2.0
/// Every update rule in double, each written as in its paper (or, where a framework's meaning has
/// become the usual one, as there): what the engine is compared with. No masters, no coefficient.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <variant>
#include <vector>

#include "outboard/rules.hpp"

namespace outboard::testing {

struct PlainState {
  std::vector<double> p, first, second;  ///< weights, and what the rule keeps
  std::uint64_t t = 0;
};

/// `initial` and what the rule starts with.
inline PlainState plain_state(const Rule& rule, const std::vector<float>& initial) {
  const auto* adagrad = std::get_if<Adagrad>(&rule);
  PlainState state;
  state.p.assign(initial.begin(), initial.end());
  state.first.assign(initial.size(), adagrad == nullptr ? 0.0 : adagrad->initial_accumulator);
  state.second.assign(initial.size(), 0.0);
  return state;
}

/// The direction of Adam's family: m-hat / (sqrt(v-hat) + eps). Renews both moments.
template <class AnyAdam>
double plain_direction(const AnyAdam& s, PlainState& state, std::size_t i, double g) {
  const auto t = static_cast<double>(state.t);
  double& m = state.first[i];
  double& v = state.second[i];
  m = s.beta1 * m + (1.0 - s.beta1) * g;
  v = s.beta2 * v + (1.0 - s.beta2) * g * g;
  const double m_hat = m / (1.0 - std::pow(s.beta1, t));
  const double v_hat = v / (1.0 - std::pow(s.beta2, t));
  return m_hat / (std::sqrt(v_hat) + s.eps);
}

inline void plain_update(const AdamW& s, PlainState& state, const std::vector<double>& g) {
  for (std::size_t i = 0; i < g.size(); ++i) {
    const double decayed = state.p[i] * (1.0 - s.lr * s.weight_decay);
    state.p[i] = decayed - s.lr * plain_direction(s, state, i, g[i]);
  }
}

inline void plain_update(const Adam& s, PlainState& state, const std::vector<double>& g) {
  for (std::size_t i = 0; i < g.size(); ++i) {
    state.p[i] -= s.lr * plain_direction(s, state, i, g[i] + s.weight_decay * state.p[i]);
  }
}

inline void plain_update(const Sgd& s, PlainState& state, const std::vector<double>& gradient) {
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    const double g = gradient[i] + s.weight_decay * state.p[i];
    double& buffer = state.first[i];
    double step = g;
    if (s.momentum > 0.0) {
      buffer = state.t == 1 ? g : s.momentum * buffer + (1.0 - s.dampening) * g;
      step = s.nesterov ? g + s.momentum * buffer : buffer;
    }
    state.p[i] -= s.lr * step;
  }
}

inline void plain_update(const Lion& s, PlainState& state, const std::vector<double>& g) {
  for (std::size_t i = 0; i < g.size(); ++i) {
    double& m = state.first[i];
    const double c = s.beta1 * m + (1.0 - s.beta1) * g[i];
    const double sign = c > 0.0 ? 1.0 : c < 0.0 ? -1.0 : 0.0;
    state.p[i] -= s.lr * (sign + s.weight_decay * state.p[i]);
    m = s.beta2 * m + (1.0 - s.beta2) * g[i];
  }
}

inline void plain_update(const Adagrad& s, PlainState& state, const std::vector<double>& gradient) {
  const double lr = s.lr / (1.0 + static_cast<double>(state.t - 1) * s.lr_decay);
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    const double g = gradient[i] + s.weight_decay * state.p[i];
    state.first[i] += g * g;
    state.p[i] -= lr * g / (std::sqrt(state.first[i]) + s.eps);
  }
}

inline void plain_update(const Lamb& s, PlainState& state, const std::vector<double>& g) {
  std::vector<double> update(g.size());
  double weights = 0.0;
  double updates = 0.0;
  for (std::size_t i = 0; i < g.size(); ++i) {
    update[i] = plain_direction(s, state, i, g[i]) + s.weight_decay * state.p[i];
    weights += state.p[i] * state.p[i];
    updates += update[i] * update[i];
  }
  const bool both = weights > 0.0 && updates > 0.0;
  const double trust = both ? std::sqrt(weights) / std::sqrt(updates) : 1.0;
  for (std::size_t i = 0; i < g.size(); ++i) state.p[i] -= s.lr * trust * update[i];
}

/// One step: t, then the rule.
inline void plain_update(const Rule& rule, PlainState& state, const std::vector<double>& gradient) {
  state.t += 1;
  std::visit([&](const auto& kind) { plain_update(kind, state, gradient); }, rule);
}

}  // namespace outboard::testing
