// SPDX-License-Identifier: Apache-2.0
/// How large the model is, and what follows from it without making one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace gpt {

/// One entry of a row of tokens.
using Token = std::uint16_t;

/// Where the gradients of the blocks live until the engine has taken them.
enum class GradBuffers : std::uint8_t {
  ring,  ///< two sets of one block each, used in turn: 14 of 16 bytes per parameter leave the
         ///< device
  full,  ///< one buffer for each parameter: 12 of 16
};

/// A decoder-only transformer: tied token embedding, learned positions, blocks of causal attention
/// and a feed-forward layer of four times the width, each behind a LayerNorm, and a last LayerNorm.
struct GptShape {
  std::size_t layers = 4;
  std::size_t width = 256;
  std::size_t heads = 4;
  std::size_t context = 128;
  std::size_t vocab = 256;
  std::size_t batch = 8;  ///< most rows of one micro-batch

  /// @throws outboard::Error{invalid_config} naming the field, its value and what is allowed.
  void validate() const;

  [[nodiscard]] std::size_t head_width() const { return width / heads; }
  /// Tokens of a row of input: the context and, shifted by one, its last target.
  [[nodiscard]] std::size_t row_tokens() const { return context + 1; }
  /// Positions of `rows` rows: the height of every activation matrix.
  [[nodiscard]] std::size_t positions(std::size_t rows) const { return rows * context; }

  [[nodiscard]] std::size_t block_elems() const;  ///< parameters of one block
  [[nodiscard]] std::size_t parameter_elems() const;
  /// Elements of each parameter, in the order of Model::parameters().
  [[nodiscard]] std::vector<std::size_t> parameter_sizes() const;
  /// Device bytes that a Model of this shape takes for each purpose. The device rounds every
  /// allocation up to 256 bytes; that is not in here.
  [[nodiscard]] std::size_t weight_bytes() const;
  [[nodiscard]] std::size_t gradient_bytes(GradBuffers buffers) const;
  [[nodiscard]] std::size_t activation_bytes(bool checkpointing) const;
  /// All three as they count against the device's limit, each allocation rounded up.
  [[nodiscard]] std::size_t device_bytes(GradBuffers buffers, bool checkpointing) const;
};

/// What an allocation of `bytes` takes of the device's memory.
[[nodiscard]] constexpr std::size_t device_rounded(std::size_t bytes) {
  constexpr std::size_t kStep = 256;
  return (bytes + kStep - 1) / kStep * kStep;
}

/// `count` matrix products of `rows` x `depth` by `depth` x `cols`.
struct Product {
  std::string_view name;
  std::size_t rows = 0, cols = 0, depth = 0;
  std::size_t count = 0;

  [[nodiscard]] double flops() const {
    return 2.0 * static_cast<double>(rows) * static_cast<double>(cols) *
           static_cast<double>(depth) * static_cast<double>(count);
  }
};

enum class Pass : std::uint8_t {
  forward,   ///< forward() and loss() without a gradient
  training,  ///< forward(), loss() and backward() of one micro-batch
};

/// Every matrix product of one micro-batch of `rows` rows, recomputation included.
[[nodiscard]] std::vector<Product> matrix_products(const GptShape& shape, std::size_t rows,
                                                   bool checkpointing, Pass pass);
[[nodiscard]] double total_flops(const std::vector<Product>& products);
/// Seconds that these products take as plain FP32 products of whole matrices, spread over
/// `threads` threads of one-threaded OpenBLAS calls: what the kernels could reach at best. Each
/// distinct product is timed for a few milliseconds after a warm-up, in parts of at most 2048 rows,
/// columns and depth.
[[nodiscard]] double sgemm_seconds(const std::vector<Product>& products, std::size_t threads);

}  // namespace gpt
