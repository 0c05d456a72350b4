// SPDX-License-Identifier: Apache-2.0
/// Every kernel against a double-precision reference of its own, and against finite differences.
#include "layers.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "text_support.hpp"

namespace text {
namespace {

using test::random_halves;
using test::rounding;
using test::value;

constexpr Half kInf = 0x7C00;

/// A linear layer's tensors, with every size off the tile borders where `shape` says so.
struct Case {
  LinearShape shape;
  std::vector<Half> x, w, b, dy;

  Case(LinearShape s, std::uint64_t seed) : shape(s) {
    Random random(seed);
    x = random_halves(s.rows * s.in, 1.0, random);
    for (Half& half : x) half = half & 0x8000u ? Half{0} : half;  // as after max(0, .)
    w = random_halves(s.in * s.out, 0.5, random);
    b = random_halves(s.out, 0.5, random);
    dy = random_halves(s.rows * s.out, 1.0, random);
  }
  /// What FP32 sums of `terms` products of values up to 1 may lose.
  static double sum_error(std::size_t terms) { return static_cast<double>(terms) * 0x1p-24 * 0.5; }
};

const LinearShape kShapes[] = {{1, 1, 1},    {3, 5, 7},       {2, 300, 1},
                               {17, 48, 33}, {300, 260, 530}, {257, 64, 513}};

class Linear : public testing::TestWithParam<LinearShape> {};
INSTANTIATE_TEST_SUITE_P(Shapes, Linear, testing::ValuesIn(kShapes), [](const auto& shape) {
  return std::to_string(shape.param.rows) + "x" + std::to_string(shape.param.in) + "x" +
         std::to_string(shape.param.out);
});

TEST_P(Linear, ForwardEqualsTheReference) {
  const Case c(GetParam(), 1);
  const auto [rows, in, out] = c.shape;
  Scratch scratch(0);
  for (const bool relu : {false, true}) {
    std::vector<Half> y(rows * out, 0x7E00);
    linear_forward({c.shape, c.x, c.w, c.b, y, relu}, scratch);
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::size_t o = 0; o < out; ++o) {
        double exact = value(c.b[o]);
        for (std::size_t i = 0; i < in; ++i)
          exact += value(c.x[r * in + i]) * value(c.w[i * out + o]);
        if (relu) exact = std::max(0.0, exact);
        ASSERT_NEAR(value(y[r * out + o]), exact, rounding(exact, Case::sum_error(in)))
            << r << "," << o << " relu " << relu;
      }
    }
  }
}

TEST_P(Linear, WeightGradientsEqualTheReference) {
  const Case c(GetParam(), 2);
  const auto [rows, in, out] = c.shape;
  Scratch scratch(0);
  std::vector<Half> dw(in * out, 0x7E00), db(out, 0x7E00);
  linear_backward_weight({c.shape, c.x, c.dy, dw, db}, scratch);
  for (std::size_t o = 0; o < out; ++o) {
    double bias = 0.0;
    for (std::size_t r = 0; r < rows; ++r) bias += value(c.dy[r * out + o]);
    ASSERT_NEAR(value(db[o]), bias, rounding(bias, Case::sum_error(rows) * 16)) << o;
    for (std::size_t i = 0; i < in; ++i) {
      double exact = 0.0;
      for (std::size_t r = 0; r < rows; ++r)
        exact += value(c.x[r * in + i]) * value(c.dy[r * out + o]);
      ASSERT_NEAR(value(dw[i * out + o]), exact, rounding(exact, Case::sum_error(rows) * 16))
          << i << "," << o;
    }
  }
}

TEST_P(Linear, InputGradientReplacesTheActivation) {
  const Case c(GetParam(), 3);
  const auto [rows, in, out] = c.shape;
  Scratch scratch(0);
  for (const bool relu : {false, true}) {
    std::vector<Half> x = c.x;
    linear_backward_input({c.shape, c.dy, c.w, x, relu}, scratch);
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::size_t i = 0; i < in; ++i) {
        double exact = 0.0;
        for (std::size_t o = 0; o < out; ++o)
          exact += value(c.dy[r * out + o]) * value(c.w[i * out + o]);
        if (relu && c.x[r * in + i] == 0) exact = 0.0;
        ASSERT_NEAR(value(x[r * in + i]), exact, rounding(exact, Case::sum_error(out) * 16))
            << r << "," << i << " relu " << relu;
      }
    }
  }
}

TEST(LinearOverflow, InfinityAndNanReachTheGradients) {
  Case c({4, 6, 5}, 4);
  c.dy[7] = kInf;
  c.dy[8] = 0x7E00;  // NaN
  Scratch scratch(0);
  std::vector<Half> dw(6 * 5), db(5), x = c.x;
  linear_backward_weight({c.shape, c.x, c.dy, dw, db}, scratch);
  linear_backward_input({c.shape, c.dy, c.w, x, false}, scratch);
  EXPECT_FALSE(std::isfinite(value(db[2])));
  EXPECT_FALSE(std::isfinite(value(db[3])));
  EXPECT_TRUE(std::isfinite(value(db[4])));
  EXPECT_FALSE(std::isfinite(value(x[6])));
  std::vector<Half> y(4 * 5);
  std::vector<Half> w = c.w;
  w[0] = 0x7E00;
  linear_forward({c.shape, std::vector<Half>(4 * 6, 0x3C00), w, c.b, y, true}, scratch);
  EXPECT_TRUE(std::isnan(value(y[0]))) << "max(0, NaN) must not become 0";
}

struct Tokens {
  std::vector<std::uint8_t> bytes;
  TokenRows rows;
  Tokens(std::size_t count, std::size_t context, std::uint64_t seed) {
    Random random(seed);
    for (std::size_t i = 0; i < count * (context + 1); ++i) {
      bytes.push_back(static_cast<std::uint8_t>(random.below(256)));
    }
    rows = {bytes, count, context};
  }
};

TEST(Embed, ForwardCopiesTheVectorsOfTheContext) {
  const Tokens tokens(5, 3, 1);
  Random random(2);
  const auto table = random_halves(kVocabulary * 4, 1.0, random);
  std::vector<Half> out(5 * 3 * 4);
  embed_forward({tokens.rows, 4, table, out});
  for (std::size_t r = 0; r < 5; ++r) {
    for (std::size_t j = 0; j < 3; ++j) {
      for (std::size_t e = 0; e < 4; ++e) {
        ASSERT_EQ(out[(r * 3 + j) * 4 + e], table[tokens.bytes[r * 4 + j] * 4u + e]);
      }
    }
  }
}

TEST(Embed, BackwardSumsWhatCameFromEachByte) {
  Tokens tokens(400, 6, 3);
  for (auto& byte : tokens.bytes) byte &= 15;  // each byte many times
  Random random(4);
  const auto gradient = random_halves(400 * 6 * 5, 1.0, random);
  std::vector<Half> out(kVocabulary * 5, 0x7E00);
  Scratch scratch(kVocabulary * 5);
  embed_backward({tokens.rows, 5, gradient, out}, scratch);
  std::vector<double> exact(kVocabulary * 5);
  for (std::size_t r = 0; r < 400; ++r) {
    for (std::size_t j = 0; j < 6; ++j) {
      for (std::size_t e = 0; e < 5; ++e) {
        exact[tokens.bytes[r * 7 + j] * 5u + e] += value(gradient[(r * 6 + j) * 5 + e]);
      }
    }
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    ASSERT_NEAR(value(out[i]), exact[i], rounding(exact[i], 1e-4)) << i;
  }
  EXPECT_EQ(out[200 * 5], 0) << "a byte that never came has no gradient";
}

/// -ln softmax(logits)[target], in double.
double reference_loss(const std::vector<double>& logits, std::size_t target) {
  double sum = 0.0;
  for (const double z : logits) sum += std::exp(z);
  return std::log(sum) - logits[target];
}

TEST(Softmax, LossAndGradientEqualTheReferenceAndFiniteDifferences) {
  const Tokens tokens(9, 2, 5);
  Random random(6);
  const auto logits = random_halves(9 * kVocabulary, 6.0, random);
  constexpr float kScale = 128.0f;
  std::vector<Half> gradient = logits;
  double exact = 0.0;
  const double loss = softmax_loss({tokens.rows, gradient, kScale});
  for (std::size_t r = 0; r < 9; ++r) {
    std::vector<double> z(kVocabulary);
    for (std::size_t i = 0; i < kVocabulary; ++i) z[i] = value(logits[r * kVocabulary + i]);
    const std::size_t target = tokens.rows.target_of(r);
    exact += reference_loss(z, target);
    for (std::size_t i = 0; i < kVocabulary; ++i) {
      const double middle = z[i];
      z[i] = middle + 1e-4;
      const double above = reference_loss(z, target);
      z[i] = middle - 1e-4;
      const double slope = (above - reference_loss(z, target)) / 2e-4 * kScale;
      z[i] = middle;
      ASSERT_NEAR(value(gradient[r * kVocabulary + i]), slope, rounding(slope, 1e-4))
          << r << "," << i;
    }
  }
  EXPECT_NEAR(loss, exact, 1e-5);
}

TEST(Softmax, WithoutAGradientTheLogitsStay) {
  const Tokens tokens(3, 2, 7);
  Random random(8);
  const auto before = random_halves(3 * kVocabulary, 3.0, random);
  std::vector<Half> logits = before;
  EXPECT_GT(softmax_loss({tokens.rows, logits, {}}), 0.0);
  EXPECT_EQ(logits, before);
}

TEST(Softmax, UniformLogitsCostLogOf256) {
  const Tokens tokens(4, 2, 9);
  std::vector<Half> logits(4 * kVocabulary, 0x3C00);
  EXPECT_NEAR(softmax_loss({tokens.rows, logits, {}}), 4 * std::log(256.0), 1e-5);
}

TEST(Scratch, IsBoundedWhateverTheModelsWidth) {
  EXPECT_EQ(Scratch(0).bytes(),
            sizeof(float) * (Scratch::kTileRows * Scratch::kTileDepth +
                             Scratch::kTileDepth * Scratch::kTileCols +
                             Scratch::kTileRows * Scratch::kTileCols + Scratch::kTileCols));
}

}  // namespace
}  // namespace text
