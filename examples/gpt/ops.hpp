// SPDX-License-Identifier: Apache-2.0
/// The operators of the model on plain spans: what runs inside a launch. FP16 in and out, FP32
/// inside, one rounding at the end, every sum in an order that depends on the shapes alone.
///
/// Every matrix is row-major; its height `rows` counts positions (rows of tokens x context).
/// Gradients carry the loss scale: the loss multiplies it in, everything after is linear. Outputs
/// may not overlap inputs unless a comment says so.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>

#include "../common/halves.hpp"
#include "elementary.hpp"
#include "shape.hpp"

namespace gpt {

using example::Half;

/// Rows of context + 1 tokens: each position's own token, and the next one as its target.
struct TokenRows {
  std::span<const Token> tokens;  ///< rows x (context + 1)
  std::size_t rows = 0;
  std::size_t context = 0;

  [[nodiscard]] std::size_t positions() const { return rows * context; }
  [[nodiscard]] Token input(std::size_t position) const {
    return tokens[position / context * (context + 1) + position % context];
  }
  [[nodiscard]] Token target(std::size_t position) const {
    return tokens[position / context * (context + 1) + position % context + 1];
  }
};

/// out[row, t] = wte[token] + wpe[t].
struct EmbedForward {
  TokenRows tokens;
  std::size_t width = 0;
  std::span<const Half> wte;  ///< vocab x width
  std::span<const Half> wpe;  ///< context x width
  std::span<Half> out;        ///< positions x width
};

/// dwpe[t] = the sum of dy over the rows; dwte[token] += the sum of dy where that token was.
struct EmbedBackward {
  TokenRows tokens;
  std::size_t width = 0;
  std::span<const Half> dy;  ///< positions x width
  std::span<Half> dwte;      ///< vocab x width; holds what the output projection gave
  std::span<Half> dwpe;      ///< context x width
};

struct RowShape {
  std::size_t rows = 0, width = 0;
};

inline constexpr float kLayerNormEpsilon = kNormalEpsilon;

/// y = (x - mean) / sqrt(variance + epsilon) * gain + bias, row by row.
struct LayerNormForward {
  RowShape shape;
  std::span<const Half> x;
  std::span<const Half> gain, bias;  ///< width
  std::span<Half> y;
};

/// Computes the statistics of x again.
struct LayerNormBackward {
  RowShape shape;
  std::span<const Half> x;
  std::span<const Half> gain;
  std::span<const Half> dy;
  std::span<const Half> residual;  ///< added to dx; empty: nothing. May be dx itself
  std::span<Half> dx;
  std::span<Half> dgain, dbias;
};

struct LinearShape {
  std::size_t rows = 0, in = 0, out = 0;
};

/// y = x w + b + residual.
struct LinearForward {
  LinearShape shape;
  std::span<const Half> x;         ///< rows x in
  std::span<const Half> w;         ///< in x out
  std::span<const Half> b;         ///< out
  std::span<const Half> residual;  ///< rows x out; empty: nothing
  std::span<Half> y;               ///< rows x out
};

/// dw = x^T dy, db = the sum of dy's rows.
struct LinearBackwardWeight {
  LinearShape shape;
  std::span<const Half> x;
  std::span<const Half> dy;
  std::span<Half> dw;
  std::span<Half> db;
};

/// dx = dy w^T.
struct LinearBackwardInput {
  LinearShape shape;
  std::span<const Half> dy;
  std::span<const Half> w;
  std::span<Half> dx;
};

struct AttentionShape {
  std::size_t rows = 0;  ///< sequences
  std::size_t context = 0;
  std::size_t heads = 0;
  std::size_t head_width = 0;

  [[nodiscard]] std::size_t width() const { return heads * head_width; }
};

/// Each head of each sequence: softmax(q k^T / sqrt(head_width), no later position) v.
struct AttentionForward {
  AttentionShape shape;
  std::span<const Half> qkv;  ///< positions x 3 width: q, k and v, each head by head
  std::span<Half> out;        ///< positions x width
};

/// Computes the softmax again.
struct AttentionBackward {
  AttentionShape shape;
  std::span<const Half> qkv;
  std::span<const Half> dout;
  std::span<Half> dqkv;
};

/// y = x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))).
struct GeluForward {
  std::span<const Half> x;
  std::span<Half> y;
};

/// dx = dy gelu'(x); dx may be dy.
struct GeluBackward {
  std::span<const Half> x;
  std::span<const Half> dy;
  std::span<Half> dx;
};

/// The last LayerNorm's output and the tied output projection, whose logits h wte^T never leave
/// FP32 tiles.
struct Head {
  TokenRows tokens;
  std::size_t width = 0, vocab = 0;
  std::span<const Half> h;    ///< positions x width
  std::span<const Half> wte;  ///< vocab x width
};

/// Cross entropy in nats of the targets. With `scale` also dh = (softmax - one_hot) wte * scale.
struct LossForward {
  Head head;
  std::span<float> log_sum;  ///< positions: log(sum(exp(logits)))
  std::optional<float> scale;
  std::span<Half> dh;  ///< positions x width; may not be h
};

/// dwte = (softmax - one_hot)^T h * scale.
struct LossBackwardTable {
  Head head;
  std::span<const float> log_sum;  ///< from LossForward
  float scale = 1.0f;
  std::span<Half> dwte;
};

/// The logits of one position.
struct Logits {
  std::size_t width = 0, vocab = 0;
  std::span<const Half> h;  ///< width
  std::span<const Half> wte;
  std::span<float> out;  ///< vocab
};

/// One call at a time.
class Ops {
 public:
  Ops() = default;
  virtual ~Ops() = default;
  Ops(const Ops&) = delete;
  Ops& operator=(const Ops&) = delete;

  virtual void embed_forward(const EmbedForward& k) = 0;
  virtual void embed_backward(const EmbedBackward& k) = 0;
  virtual void layernorm_forward(const LayerNormForward& k) = 0;
  virtual void layernorm_backward(const LayerNormBackward& k) = 0;
  virtual void linear_forward(const LinearForward& k) = 0;
  virtual void linear_backward_weight(const LinearBackwardWeight& k) = 0;
  virtual void linear_backward_input(const LinearBackwardInput& k) = 0;
  virtual void attention_forward(const AttentionForward& k) = 0;
  virtual void attention_backward(const AttentionBackward& k) = 0;
  virtual void gelu_forward(const GeluForward& k) = 0;
  virtual void gelu_backward(const GeluBackward& k) = 0;
  /// @return the sum over the positions.
  [[nodiscard]] virtual double loss_forward(const LossForward& k) = 0;
  /// Leaves it in memory of the operators' kind.
  virtual void loss_into(const LossForward& k, std::span<double> loss) {
    loss[0] = loss_forward(k);
  }
  virtual void loss_backward_table(const LossBackwardTable& k) = 0;
  virtual void logits(const Logits& k) = 0;

  /// FP32 tiles and sums: a GPU's registers and shared memory, so not device memory.
  [[nodiscard]] virtual std::size_t scratch_bytes() const = 0;
  /// Of these the tiles of one thread: at most kMostThreadScratch.
  [[nodiscard]] virtual std::size_t thread_scratch_bytes() const = 0;
};

/// What one thread's tiles may take, and what those of a shape do, without making them.
inline constexpr std::size_t kMostThreadScratch = std::size_t{8} << 20;
[[nodiscard]] std::size_t thread_scratch_bytes(const GptShape& shape);

/// The operators on the host's cores: OpenBLAS inside fixed tiles, spread over `threads` threads
/// (the caller's is one of them). The bits do not depend on `threads`. `shape` bounds what the
/// calls may ask for.
[[nodiscard]] std::unique_ptr<Ops> make_host_ops(const GptShape& shape, std::size_t threads);

}  // namespace gpt
