// SPDX-License-Identifier: Apache-2.0
/// The double-precision reference's backwards against finite differences of its forwards.
#include "gpt_reference.hpp"

#include <gtest/gtest.h>

#include "gpt_support.hpp"

namespace gpt {
namespace {

using reference::Doubles;
using test::expect_gradient;

Doubles random_doubles(std::size_t count, example::Random& random) {
  Doubles doubles(count);
  for (double& value : doubles) value = 2.0 * random.unit() - 1.0;
  return doubles;
}

class GptReference : public testing::Test {
 protected:
  Doubles doubles(std::size_t count) { return random_doubles(count, random_); }
  example::Random random_{7};
};

TEST_F(GptReference, ProductsAreSumsOfProducts) {
  // Of whole matrices of 5 x 4 values with rows 7 apart, every way of transposing.
  constexpr std::size_t kRows = 5, kCols = 4, kDepth = 3, kStride = 7;
  for (const bool a_transposed : {false, true}) {
    for (const bool b_transposed : {false, true}) {
      for (const bool keep : {false, true}) {
        const Doubles a = doubles(5 * kStride), b = doubles(5 * kStride), c = doubles(5 * kStride);
        Doubles got = c;
        reference::product({kRows, kCols, kDepth}, {a.data(), kStride, a_transposed},
                           {b.data(), kStride, b_transposed}, {got.data(), kStride, keep});
        for (std::size_t i = 0; i < got.size(); ++i) {
          const std::size_t row = i / kStride, col = i % kStride;
          double want = keep || col >= kCols ? c[i] : 0.0;
          for (std::size_t d = 0; d < kDepth && col < kCols; ++d) {
            want += (a_transposed ? a[d * kStride + row] : a[row * kStride + d]) *
                    (b_transposed ? b[col * kStride + d] : b[d * kStride + col]);
          }
          ASSERT_NEAR(got[i], want, 1e-14) << i << a_transposed << b_transposed << keep;
        }
      }
    }
  }
}

TEST_F(GptReference, LayerNorm) {
  const Doubles x = doubles(3 * 7), gain = doubles(7), bias = doubles(7), dy = doubles(3 * 7);
  const reference::NormalGradients d = reference::layernorm_backward(x, gain, dy);
  expect_gradient([&](const Doubles& v) { return reference::layernorm(v, gain, bias); }, x, dy,
                  d.x);
  expect_gradient([&](const Doubles& v) { return reference::layernorm(x, v, bias); }, gain, dy,
                  d.gain);
  expect_gradient([&](const Doubles& v) { return reference::layernorm(x, gain, v); }, bias, dy,
                  d.bias);
}

TEST_F(GptReference, Linear) {
  const Doubles x = doubles(3 * 5), w = doubles(5 * 4), b = doubles(4), dy = doubles(3 * 4);
  const reference::LinearGradients d = reference::linear_backward(x, w, dy);
  expect_gradient([&](const Doubles& v) { return reference::linear(v, w, b); }, x, dy, d.x);
  expect_gradient([&](const Doubles& v) { return reference::linear(x, v, b); }, w, dy, d.w);
  expect_gradient([&](const Doubles& v) { return reference::linear(x, w, v); }, b, dy, d.b);
}

TEST_F(GptReference, Attention) {
  const AttentionShape shape{.rows = 2, .context = 5, .heads = 2, .head_width = 3};
  const Doubles qkv = doubles(2 * 5 * 18), dy = doubles(2 * 5 * 6);
  expect_gradient([&](const Doubles& v) { return reference::attention(shape, v); }, qkv, dy,
                  reference::attention_backward(shape, qkv, dy));
}

TEST_F(GptReference, Gelu) {
  Doubles x = doubles(40);
  for (double& v : x) v *= 4.0;
  const Doubles dy = doubles(40);
  expect_gradient(reference::gelu, x, dy, reference::gelu_backward(x, dy));
}

TEST_F(GptReference, EmbeddingAndLoss) {
  const std::vector<Token> list = test::random_tokens(2 * 4, 5, random_);
  const TokenRows tokens{list, 2, 3};
  const Doubles wte = doubles(5 * 4), wpe = doubles(3 * 4), dy = doubles(6 * 4);
  Doubles dwte(wte.size()), dwpe(wpe.size());
  reference::embed_backward(tokens, dy, dwte, dwpe);
  expect_gradient([&](const Doubles& v) { return reference::embed(tokens, v, wpe); }, wte, dy,
                  dwte);
  expect_gradient([&](const Doubles& v) { return reference::embed(tokens, wte, v); }, wpe, dy,
                  dwpe);
  const reference::LossResult loss = reference::loss(tokens, dy, wte);
  expect_gradient([&](const Doubles& v) { return Doubles{reference::loss(tokens, v, wte).loss}; },
                  dy, {1.0}, loss.dh);
  expect_gradient([&](const Doubles& v) { return Doubles{reference::loss(tokens, dy, v).loss}; },
                  wte, {1.0}, loss.dwte);
}

TEST_F(GptReference, WholeModel) {
  const GptShape shape{.layers = 2, .width = 6, .heads = 2, .context = 4, .vocab = 5, .batch = 2};
  const std::vector<Token> list = test::random_tokens(2 * 5, 5, random_);
  const TokenRows tokens{list, 2, 4};
  const std::size_t c = shape.width;
  reference::Parameters parameters{doubles(5 * c), doubles(4 * c)};
  for (std::size_t i = 0; i < shape.layers; ++i) {
    for (const std::size_t elems :
         {c, c, 3 * c * c, 3 * c, c * c, c, c, c, 4 * c * c, 4 * c, 4 * c * c, c}) {
      parameters.push_back(doubles(elems));
    }
  }
  parameters.push_back(doubles(c));
  parameters.push_back(doubles(c));
  const reference::Parameters d = reference::model_gradients(shape, tokens, parameters);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    SCOPED_TRACE(i);
    const auto loss_of = [&](const Doubles& v) {
      reference::Parameters changed = parameters;
      changed[i] = v;
      return Doubles{reference::model_loss(shape, tokens, changed)};
    };
    expect_gradient(loss_of, parameters[i], {1.0}, d[i]);
  }
}

}  // namespace
}  // namespace gpt
