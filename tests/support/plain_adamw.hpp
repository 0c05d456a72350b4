// SPDX-License-Identifier: Apache-2.0
/// What the engine is compared with: decoupled-decay Adam in double, written as in the paper, with
/// global-norm clipping, loss scaling and accumulation. No masters, no offload, no cleverness.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "outboard/config.hpp"

namespace outboard::testing {

class PlainAdamW {
 public:
  struct Parameter {
    std::vector<double> p, m, v;
    std::uint64_t t = 0;
    std::size_t group = 0;
  };
  struct Options {
    double max_grad_norm = 0.0;
    std::uint32_t accumulation = 1;
    LossScaling loss_scaling;
  };
  struct Result {
    bool skipped = false;
    double grad_norm = 0.0;
    double clip = 1.0;
    double loss_scale = 1.0;
  };
  /// As given by the backward: times the loss scale, summed over micro-batches. Absent: none.
  using Gradients = std::vector<std::optional<std::vector<double>>>;

  PlainAdamW(std::vector<AdamW> groups, Options options)
      : groups_(std::move(groups)),
        options_(options),
        loss_scale_(options.loss_scaling.initial_scale) {}

  std::size_t add(std::vector<double> initial, std::size_t group = 0) {
    Parameter parameter;
    parameter.m.assign(initial.size(), 0.0);
    parameter.v.assign(initial.size(), 0.0);
    parameter.p = std::move(initial);
    parameter.group = group;
    parameters_.push_back(std::move(parameter));
    return parameters_.size() - 1;
  }
  void set_group(std::size_t group, const AdamW& settings) { groups_.at(group) = settings; }
  [[nodiscard]] Parameter& parameter(std::size_t index) { return parameters_.at(index); }
  [[nodiscard]] double loss_scale() const { return loss_scale_; }

  Result step(const Gradients& gradients) {
    Result result{.loss_scale = loss_scale_};
    const double unscale = 1.0 / (loss_scale_ * options_.accumulation);
    double sum = 0.0;
    bool any = false;
    for (const auto& gradient : gradients) {
      if (!gradient) continue;
      any = true;
      for (const double g : *gradient) sum += g * g;
    }
    if (!any) return result;
    result.grad_norm = std::sqrt(sum) * unscale;
    result.skipped = !std::isfinite(sum);
    adapt_scale(result.skipped);
    if (result.skipped) return result;
    const double limit = options_.max_grad_norm;
    if (limit > 0.0 && std::isfinite(limit)) {
      result.clip = std::min(1.0, limit / (result.grad_norm + 1e-6));
    }
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      if (gradients[i]) update(parameters_[i], *gradients[i], unscale * result.clip);
    }
    return result;
  }

 private:
  void update(Parameter& parameter, const std::vector<double>& gradient, double coeff) const {
    const AdamW& s = groups_.at(parameter.group);
    const auto t = static_cast<double>(++parameter.t);
    const double bias1 = 1.0 - std::pow(s.beta1, t);
    const double bias2 = 1.0 - std::pow(s.beta2, t);
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      const double g = gradient[i] * coeff;
      double& p = parameter.p[i];
      double& m = parameter.m[i];
      double& v = parameter.v[i];
      p *= 1.0 - s.lr * s.weight_decay;
      m = s.beta1 * m + (1.0 - s.beta1) * g;
      v = s.beta2 * v + (1.0 - s.beta2) * g * g;
      p -= s.lr * (m / bias1) / (std::sqrt(v / bias2) + s.eps);
    }
  }
  void adapt_scale(bool overflow) {
    const LossScaling& s = options_.loss_scaling;
    if (!s.dynamic) return;
    clean_steps_ = overflow ? 0 : clean_steps_ + 1;
    if (overflow) loss_scale_ = std::max(s.min_scale, loss_scale_ / 2.0);
    if (clean_steps_ < s.growth_interval || overflow) return;
    clean_steps_ = 0;
    loss_scale_ = std::min(s.max_scale, loss_scale_ * 2.0);
  }

  std::vector<AdamW> groups_;
  Options options_;
  double loss_scale_;
  std::uint32_t clean_steps_ = 0;
  std::vector<Parameter> parameters_;
};

}  // namespace outboard::testing
