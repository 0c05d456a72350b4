// SPDX-License-Identifier: Apache-2.0
/// The kernels of the model on plain spans: what runs inside a launch. FP16 in and out, FP32
/// inside, one rounding at the end, every sum in a fixed order.
///
/// Gradients carry the loss scale: the loss kernel multiplies it in, everything after is linear.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "gemm.hpp"

namespace text {

inline constexpr std::size_t kVocabulary = 256;  ///< bytes

/// Rows of `context` bytes to look at and the one byte that follows them.
struct TokenRows {
  std::span<const std::uint8_t> bytes;  ///< rows x (context + 1)
  std::size_t rows = 0;
  std::size_t context = 0;

  [[nodiscard]] std::span<const std::uint8_t> context_of(std::size_t row) const {
    return bytes.subspan(row * (context + 1), context);
  }
  [[nodiscard]] std::uint8_t target_of(std::size_t row) const {
    return bytes[row * (context + 1) + context];
  }
};

/// out[row] = the table's vectors of the row's context bytes, one after the other.
struct EmbedForward {
  TokenRows tokens;
  std::size_t embed = 0;
  std::span<const Half> table;  ///< 256 x embed
  std::span<Half> out;          ///< rows x (context * embed)
};
void embed_forward(const EmbedForward& k);

/// table_gradient = the sum of `gradient`'s vectors that came from each byte.
struct EmbedBackward {
  TokenRows tokens;
  std::size_t embed = 0;
  std::span<const Half> gradient;  ///< rows x (context * embed)
  std::span<Half> table_gradient;  ///< 256 x embed
};
void embed_backward(const EmbedBackward& k, Scratch& scratch);

struct LinearShape {
  std::size_t rows = 0, in = 0, out = 0;
};

/// y = x w + b, then max(0, y) if `relu`.
struct LinearForward {
  LinearShape shape;
  std::span<const Half> x;  ///< rows x in
  std::span<const Half> w;  ///< in x out
  std::span<const Half> b;  ///< out
  std::span<Half> y;        ///< rows x out
  bool relu = false;
};
void linear_forward(const LinearForward& k, Scratch& scratch);

/// dw = x^T dy, db = the sum of dy's rows.
struct LinearBackwardWeight {
  LinearShape shape;
  std::span<const Half> x;   ///< rows x in
  std::span<const Half> dy;  ///< rows x out
  std::span<Half> dw;        ///< in x out
  std::span<Half> db;        ///< out
};
void linear_backward_weight(const LinearBackwardWeight& k, Scratch& scratch);

/// x = dy w^T: the activation is replaced by its own gradient, in place. With `relu`, x is what a
/// max(0, .) gave out, and the gradient stays 0 where x was 0.
struct LinearBackwardInput {
  LinearShape shape;
  std::span<const Half> dy;  ///< rows x out
  std::span<const Half> w;   ///< in x out
  std::span<Half> x;         ///< rows x in: activation in, gradient out
  bool relu = false;
};
void linear_backward_input(const LinearBackwardInput& k, Scratch& scratch);

/// Cross entropy in nats, summed over the rows. With `gradient_scale` the logits are replaced by
/// (softmax - one_hot) * gradient_scale.
struct SoftmaxLoss {
  TokenRows tokens;
  std::span<Half> logits;  ///< rows x 256
  std::optional<float> gradient_scale;
};
[[nodiscard]] double softmax_loss(const SoftmaxLoss& k);

}  // namespace text
