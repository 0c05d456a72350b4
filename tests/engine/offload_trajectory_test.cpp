// SPDX-License-Identifier: Apache-2.0
/// A small network trained for 200 steps with the engine and with the plain optimizer: the loss of
/// every step is the same.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "engine/precisions.hpp"
#include "engine/small_network.hpp"
#include "engine/trained_network.hpp"
#include "support/manual_trainer.hpp"
#include "support/plain_adamw.hpp"

namespace outboard::testing {
namespace {

constexpr int kSteps = 200;
const AdamW kSettings{.lr = 1e-3, .weight_decay = 0.01};

using Values = Network::Values;

/// A value as a parameter of this type holds it.
float rounded(DType dtype, double value) {
  return rounded_to(static_cast<float>(value), dtype);
}

/// AdamW on floats in the order of docs/numerics.md, one element after the other: what the engine
/// would be without offload, threads, buckets and vectors.
class PlainFloats {
 public:
  void add(const Values& initial) {
    parameters_.push_back({initial, Values(initial.size()), Values(initial.size())});
  }
  [[nodiscard]] const Values& values(std::size_t i) const { return parameters_[i].p; }

  /// `gradients`: times `scale`, as their type rounded them.
  void step(const std::vector<Values>& gradients, double scale) {
    ++step_;
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      for (std::size_t e = 0; e < gradients[i].size(); ++e) {
        update(parameters_[i], e, gradients[i][e] * static_cast<float>(1.0 / scale));
      }
    }
  }

 private:
  struct Parameter {
    Values p, m, v;
  };
  void update(Parameter& state, std::size_t e, float g) const {
    const AdamW& s = kSettings;
    const double bias1 = 1.0 - std::pow(s.beta1, step_);
    const double bias2 = 1.0 - std::pow(s.beta2, step_);
    float &p = state.p[e], &m = state.m[e], &v = state.v[e];
    m = static_cast<float>(s.beta1) * m + static_cast<float>(1.0 - s.beta1) * g;
    v = static_cast<float>(s.beta2) * v + static_cast<float>(1.0 - s.beta2) * g * g;
    const float d =
        std::sqrt(v) * static_cast<float>(1.0 / std::sqrt(bias2)) + static_cast<float>(s.eps);
    p -= static_cast<float>(s.lr * s.weight_decay) * p + static_cast<float>(s.lr / bias1) * (m / d);
  }
  std::vector<Parameter> parameters_;
  int step_ = 0;
};

std::vector<Values> rounded_gradients(const Network::Result& result, const Precision& precision) {
  std::vector<Values> out;
  for (const std::vector<double>& gradient : result.gradients) {
    out.emplace_back();
    for (const double g : gradient) {
      out.back().push_back(rounded(precision.dtype, g * precision.loss_scale));
    }
  }
  return out;
}

std::vector<double> plain_losses(const Precision& precision) {
  PlainAdamW plain({kSettings}, {.loss_scaling = precision.config().loss_scaling});
  for (const Values& values : Network::initial()) {
    std::vector<double> start;
    for (const float value : values) start.push_back(rounded(precision.dtype, value));
    plain.add(start);
  }
  std::vector<double> losses;
  for (int step = 0; step < kSteps; ++step) {
    std::vector<Values> weights(Network::initial().size());
    for (std::size_t i = 0; i < weights.size(); ++i) {
      for (const double p : plain.parameter(i).p) weights[i].push_back(rounded(precision.dtype, p));
    }
    const Network::Result result = Network::run(weights);
    losses.push_back(result.loss);
    PlainAdamW::Gradients gradients;
    for (const Values& gradient : rounded_gradients(result, precision)) {
      gradients.emplace_back(std::vector<double>(gradient.begin(), gradient.end()));
    }
    EXPECT_FALSE(plain.step(gradients).skipped);
  }
  return losses;
}

std::vector<double> plain_float_losses(const Precision& precision) {
  PlainFloats plain;
  for (Values values : Network::initial()) {
    for (float& value : values) value = rounded(precision.dtype, value);
    plain.add(values);
  }
  std::vector<double> losses;
  for (int step = 0; step < kSteps; ++step) {
    std::vector<Values> weights(Network::initial().size());
    for (std::size_t i = 0; i < weights.size(); ++i) {
      for (const float p : plain.values(i)) weights[i].push_back(rounded(precision.dtype, p));
    }
    const Network::Result result = Network::run(weights);
    losses.push_back(result.loss);
    plain.step(rounded_gradients(result, precision), precision.loss_scale);
  }
  return losses;
}

std::vector<double> engine_losses(const Flavour& flavour, const Precision& precision) {
  ManualTrainer trainer(flavour.apply(precision.config()), flavour.device());
  trainer.dtype = precision.dtype;
  const GroupId group = trainer.engine->add_group(kSettings);
  return train_network(trainer, group, kSteps, [&](const Network::Result& result) {
    return rounded_gradients(result, precision);
  });
}

/// The references' losses, made once for each precision.
struct References {
  std::vector<double> doubles, floats;
};
const References& references(const Precision& precision) {
  static std::map<std::string, References> all;
  auto [at, added] = all.try_emplace(precision.name);
  if (added) at->second = {plain_losses(precision), plain_float_losses(precision)};
  return at->second;
}

class OffloadTrajectory : public ::testing::TestWithParam<PreciseFlavour> {};
INSTANTIATE_TEST_SUITE_P(Ways, OffloadTrajectory, all_precise_flavours(),
                         [](const auto& test) { return precise_flavour_name(test.param); });

TEST_P(OffloadTrajectory, HasTheLossesOfThePlainOptimizer) {
  const auto& [flavour, precision] = GetParam();
  const References& want = references(precision);
  const std::vector<double> got = engine_losses(flavour, precision);
  double largest = 0.0;
  for (std::size_t step = 0; step < kSteps; ++step) {
    ASSERT_EQ(got[step], want.floats[step]) << "step " << step << ", floats without offload";
    const double exact = want.doubles[step];
    largest = std::max(largest, std::abs(got[step] - exact) / exact);
    ASSERT_NEAR(got[step], exact, exact * precision.loss_tolerance) << "step " << step;
  }
  EXPECT_LT(got.back(), 0.7 * got.front()) << "it has not learnt";
  RecordProperty("largest_relative_difference", std::to_string(largest));
}

}  // namespace
}  // namespace outboard::testing
