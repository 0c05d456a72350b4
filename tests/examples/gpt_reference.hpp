// SPDX-License-Identifier: Apache-2.0
/// The GPT example's operators and its whole model in double precision, written the obvious way on
/// whole matrices. Backwards are derived by hand and checked against finite differences of the
/// forwards; products are OpenBLAS's in double, checked against plain sums.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "ops.hpp"

namespace gpt::reference {

using Doubles = std::vector<double>;

/// c (rows x cols) = a b, or with `keep` c + a b; rows of each matrix are `stride` values apart.
struct ProductShape {
  std::size_t rows, cols, depth;
};
struct Factor {
  const double* values;
  std::size_t stride;
  bool transposed = false;
};
struct Result {
  double* values;
  std::size_t stride;
  bool keep = false;
};
void product(const ProductShape& shape, const Factor& a, const Factor& b, const Result& c);

/// out (rows x width) = wte[token] + wpe[position].
Doubles embed(const TokenRows& tokens, const Doubles& wte, const Doubles& wpe);
/// Adds to dwte and dwpe.
void embed_backward(const TokenRows& tokens, const Doubles& dy, Doubles& dwte, Doubles& dwpe);

struct NormalGradients {
  Doubles x, gain, bias;
};
Doubles layernorm(const Doubles& x, const Doubles& gain, const Doubles& bias);
NormalGradients layernorm_backward(const Doubles& x, const Doubles& gain, const Doubles& dy);

struct LinearGradients {
  Doubles x, w, b;
};
/// x (rows x in), w (in x out), b (out).
Doubles linear(const Doubles& x, const Doubles& w, const Doubles& b);
LinearGradients linear_backward(const Doubles& x, const Doubles& w, const Doubles& dy);

Doubles attention(const AttentionShape& shape, const Doubles& qkv);
Doubles attention_backward(const AttentionShape& shape, const Doubles& qkv, const Doubles& dout);

Doubles gelu(const Doubles& x);
Doubles gelu_backward(const Doubles& x, const Doubles& dy);

struct LossResult {
  double loss = 0.0;  ///< summed over the positions
  Doubles dh, dwte;   ///< of that sum
};
LossResult loss(const TokenRows& tokens, const Doubles& h, const Doubles& wte);

Doubles add(Doubles a, const Doubles& b);

/// Parameters in the order of Model::parameters().
using Parameters = std::vector<Doubles>;
double model_loss(const GptShape& shape, const TokenRows& tokens, const Parameters& parameters);
struct ModelResult {
  double loss = 0.0;     ///< summed over the positions
  Parameters gradients;  ///< of that sum
};
ModelResult model_step(const GptShape& shape, const TokenRows& tokens,
                       const Parameters& parameters);
/// Gradients of the summed loss.
Parameters model_gradients(const GptShape& shape, const TokenRows& tokens,
                           const Parameters& parameters);

}  // namespace gpt::reference
