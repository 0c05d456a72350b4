// SPDX-License-Identifier: Apache-2.0
/// A small network that tests train: its loss and its gradients, in double.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

#include "support/tiny_trainer.hpp"

namespace outboard::testing {

/// 24 -> 96 -> 80 -> 4 with tanh between, mean squared error over 16 fixed samples, which
/// come in pairs of one input and two targets, so that the loss does not go to 0: 10,484
/// parameters.
class Network {
 public:
  using Values = std::vector<float>;
  static constexpr std::size_t kSamples = 16;
  static constexpr std::array<std::size_t, 4> kWidths = {24, 96, 80, 4};
  static constexpr std::size_t kLayers = kWidths.size() - 1;

  struct Result {
    double loss = 0.0;
    std::vector<std::vector<double>> gradients;  ///< weight and bias of each layer in turn
  };

  static std::vector<Values> initial() {
    std::vector<Values> out;
    for (std::size_t layer = 0; layer < kLayers; ++layer) {
      const float width = 1.0F / std::sqrt(static_cast<float>(kWidths[layer]));
      Values weights(kWidths[layer] * kWidths[layer + 1]);
      for (std::size_t e = 0; e < weights.size(); ++e) weights[e] = width * mixed_unit(1, layer, e);
      out.push_back(std::move(weights));
      out.emplace_back(kWidths[layer + 1], 0.0F);
    }
    return out;
  }

  /// `parameters`: as initial() lays them out.
  static Result run(const std::vector<Values>& parameters) {
    Result result;
    for (const Values& values : parameters) result.gradients.emplace_back(values.size(), 0.0);
    for (std::size_t sample = 0; sample < kSamples; ++sample) add(parameters, sample, result);
    return result;
  }

 private:
  using Row = std::vector<double>;

  static void add(const std::vector<Values>& parameters, std::size_t sample, Result& result) {
    std::vector<Row> rows(1);
    for (std::size_t i = 0; i < kWidths[0]; ++i) {
      rows[0].push_back(static_cast<double>(mixed_unit(2, sample / 2, i)));
    }
    for (std::size_t layer = 0; layer < kLayers; ++layer) {
      rows.push_back(forward(parameters, layer, rows[layer]));
    }
    Row error(kWidths[kLayers]);
    for (std::size_t o = 0; o < error.size(); ++o) {
      const double off = rows[kLayers][o] - static_cast<double>(mixed_unit(3, sample, o));
      result.loss += off * off / kSamples;
      error[o] = 2.0 * off / kSamples;
    }
    for (std::size_t layer = kLayers; layer-- > 0;) {
      error = backward(parameters, layer, rows[layer], error, result.gradients);
    }
  }

  static Row forward(const std::vector<Values>& parameters, std::size_t layer, const Row& in) {
    const Values& weights = parameters[2 * layer];
    Row out(parameters[2 * layer + 1].begin(), parameters[2 * layer + 1].end());
    for (std::size_t i = 0; i < in.size(); ++i) {
      const float* row = &weights[i * out.size()];
      for (std::size_t o = 0; o < out.size(); ++o) out[o] += in[i] * static_cast<double>(row[o]);
    }
    if (layer + 1 < kLayers)
      std::ranges::transform(out, out.begin(), [](double x) { return std::tanh(x); });
    return out;
  }

  /// Adds this layer's gradients. @return the error before its input's tanh.
  static Row backward(const std::vector<Values>& parameters, std::size_t layer, const Row& in,
                      const Row& error, std::vector<std::vector<double>>& gradients) {
    const Values& weights = parameters[2 * layer];
    Row before(in.size(), 0.0);
    for (std::size_t o = 0; o < error.size(); ++o) gradients[2 * layer + 1][o] += error[o];
    for (std::size_t i = 0; i < in.size(); ++i) {
      for (std::size_t o = 0; o < error.size(); ++o) {
        const std::size_t e = i * error.size() + o;
        gradients[2 * layer][e] += in[i] * error[o];
        before[i] += static_cast<double>(weights[e]) * error[o];
      }
      before[i] *= 1.0 - in[i] * in[i];  // of the first layer's input nobody asks
    }
    return before;
  }
};

}  // namespace outboard::testing
