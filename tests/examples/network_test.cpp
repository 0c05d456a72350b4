// SPDX-License-Identifier: Apache-2.0
/// The kernels in the order in which the model runs them, against finite differences of the whole
/// network's loss computed in double.
#include <gtest/gtest.h>

#include <cmath>

#include "layers.hpp"
#include "text_support.hpp"

namespace text {
namespace {

using test::random_halves;
using test::value;

constexpr std::size_t kRows = 24, kContext = 4, kEmbed = 3, kWidth = 20;
constexpr std::size_t kIn = kContext * kEmbed;
constexpr float kScale = 4096.0f;

/// Weights in the order: table, w1, b1, w2, b2.
struct Network {
  std::vector<std::vector<Half>> weights;
  std::vector<std::uint8_t> bytes;

  explicit Network(std::uint64_t seed) {
    Random random(seed);
    weights = {random_halves(kVocabulary * kEmbed, 1.0, random),
               random_halves(kIn * kWidth, 0.7, random), random_halves(kWidth, 0.5, random),
               random_halves(kWidth * kVocabulary, 0.4, random),
               random_halves(kVocabulary, 0.2, random)};
    for (std::size_t i = 0; i < kRows * (kContext + 1); ++i) {
      bytes.push_back(static_cast<std::uint8_t>(random.below(24)));
    }
  }
  [[nodiscard]] TokenRows tokens() const { return {bytes, kRows, kContext}; }

  /// Gradients by the kernels, scaled back.
  [[nodiscard]] std::vector<std::vector<double>> gradients() const {
    Scratch scratch(kVocabulary * kEmbed);
    const LinearShape first{kRows, kIn, kWidth}, second{kRows, kWidth, kVocabulary};
    std::vector<Half> x(kRows * kIn), h(kRows * kWidth), z(kRows * kVocabulary);
    std::vector<std::vector<Half>> g;
    for (const auto& weight : weights) g.emplace_back(weight.size());
    embed_forward({tokens(), kEmbed, weights[0], x});
    linear_forward({first, x, weights[1], weights[2], h, true}, scratch);
    linear_forward({second, h, weights[3], weights[4], z, false}, scratch);
    (void)softmax_loss({tokens(), z, kScale / kRows});
    linear_backward_weight({second, h, z, g[3], g[4]}, scratch);
    linear_backward_input({second, z, weights[3], h, true}, scratch);
    linear_backward_weight({first, x, h, g[1], g[2]}, scratch);
    linear_backward_input({first, h, weights[1], x, false}, scratch);
    embed_backward({tokens(), kEmbed, x, g[0]}, scratch);
    std::vector<std::vector<double>> result;
    for (const auto& gradient : g) {
      std::vector<double>& values = result.emplace_back();
      for (const Half half : gradient) values.push_back(value(half) / kScale);
    }
    return result;
  }

  /// Mean loss in double, with `delta` added to one weight.
  [[nodiscard]] double loss(std::size_t which, std::size_t element, double delta) const {
    const auto at = [&](std::size_t w, std::size_t i) {
      return value(weights[w][i]) + (w == which && i == element ? delta : 0.0);
    };
    double total = 0.0;
    for (std::size_t r = 0; r < kRows; ++r) {
      std::vector<double> h(kWidth), z(kVocabulary);
      for (std::size_t o = 0; o < kWidth; ++o) {
        h[o] = at(2, o);
        for (std::size_t i = 0; i < kIn; ++i) {
          const std::size_t byte = bytes[r * (kContext + 1) + i / kEmbed];
          h[o] += at(0, byte * kEmbed + i % kEmbed) * at(1, i * kWidth + o);
        }
        h[o] = std::max(0.0, h[o]);
      }
      double sum = 0.0;
      for (std::size_t o = 0; o < kVocabulary; ++o) {
        z[o] = at(4, o);
        for (std::size_t i = 0; i < kWidth; ++i) z[o] += h[i] * at(3, i * kVocabulary + o);
        sum += std::exp(z[o]);
      }
      total += std::log(sum) - z[tokens().target_of(r)];
    }
    return total / kRows;
  }
};

TEST(Network, GradientsEqualFiniteDifferences) {
  const Network network(11);
  const auto gradients = network.gradients();
  Random random(12);
  for (std::size_t which = 0; which < gradients.size(); ++which) {
    double worst = 0.0, largest = 0.0;
    for (int probe = 0; probe < 60; ++probe) {
      // Bytes below 24 occur; the others' embeddings have no gradient.
      const std::size_t elems = which == 0 ? 24 * kEmbed : gradients[which].size();
      const std::size_t element = random.below(elems);
      constexpr double kDelta = 1e-5;
      const double slope =
          (network.loss(which, element, kDelta) - network.loss(which, element, -kDelta)) /
          (2 * kDelta);
      worst = std::max(worst, std::abs(slope - gradients[which][element]));
      largest = std::max(largest, std::abs(slope));
    }
    EXPECT_GT(largest, 1e-3) << which;
    EXPECT_LT(worst, 0.004 * largest) << "weights " << which << ", largest slope " << largest;
  }
}

}  // namespace
}  // namespace text
