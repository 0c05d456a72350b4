// SPDX-License-Identifier: Apache-2.0
/// The operators on the host's cores. Each folder-mate host_*.cpp has some of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "../common/tiles.hpp"
#include "host_rows.hpp"
#include "ops.hpp"
#include "workers.hpp"

namespace gpt {

/// Rows of queries that attention handles at once, and of positions that the loss does.
inline constexpr std::size_t kQueryRows = 64;
inline constexpr std::size_t kLossRows = 128;
/// Entries of the vocabulary whose logits are made at once.
inline constexpr std::size_t kLossVocab = 256;
inline constexpr std::size_t kTableVocab = 128;
inline constexpr std::size_t kTableRows = 256;
/// Columns that one thread sums over all positions.
inline constexpr std::size_t kColumns = 64;
/// Elements that GELU widens at once.
inline constexpr std::size_t kGeluPiece = 4096;

/// Tiles of a rows x cols product: small ones where there would be too few to share out.
[[nodiscard]] example::TileSize tile_size(std::size_t rows, std::size_t cols);

[[nodiscard]] constexpr std::size_t divide_up(std::size_t value, std::size_t by) {
  return (value + by - 1) / by;
}

class HostOps final : public Ops {
 public:
  HostOps(const GptShape& shape, std::size_t threads);

  void embed_forward(const EmbedForward& k) override;
  void embed_backward(const EmbedBackward& k) override;
  void layernorm_forward(const LayerNormForward& k) override;
  void layernorm_backward(const LayerNormBackward& k) override;
  void linear_forward(const LinearForward& k) override;
  void linear_backward_weight(const LinearBackwardWeight& k) override;
  void linear_backward_input(const LinearBackwardInput& k) override;
  void attention_forward(const AttentionForward& k) override;
  void attention_backward(const AttentionBackward& k) override;
  void gelu_forward(const GeluForward& k) override;
  void gelu_backward(const GeluBackward& k) override;
  [[nodiscard]] double loss_forward(const LossForward& k) override;
  void loss_backward_table(const LossBackwardTable& k) override;
  void logits(const Logits& k) override;
  [[nodiscard]] std::size_t scratch_bytes() const override;
  [[nodiscard]] std::size_t thread_scratch_bytes() const override;

  /// FP32 working memory of one thread.
  class Lane {
   public:
    explicit Lane(std::size_t elems) : floats_(elems) {}
    /// The next `elems` floats; all are given back by restart().
    [[nodiscard]] std::span<float> take(std::size_t elems);
    Lane& restart() {
      taken_ = 0;
      return *this;
    }
    [[nodiscard]] std::size_t bytes() const {
      return tiles.bytes() + floats_.size() * sizeof(float);
    }

    example::TileScratch tiles{example::TileSize{}};

   private:
    std::vector<float> floats_;
    std::size_t taken_ = 0;
  };
  /// What Lane::take() must have room for.
  [[nodiscard]] static std::size_t lane_elems(const GptShape& shape);

 private:
  /// Hands every tile of a*b to store(tile, lane).
  template <class Store>
  void multiply(const example::Operand& a, const example::Operand& b, const Store& store);
  void sort_positions(const TokenRows& tokens, std::size_t vocab);

  const RowKernels& rows_ = row_kernels();
  Workers workers_;
  std::vector<Lane> lanes_;
  std::vector<Moments> moments_;         // of each position, for the LayerNorm's parameters
  std::vector<double> losses_;           // of each block of positions
  std::vector<std::uint32_t> position_;  // sorted by token, then by position
  std::vector<std::uint32_t> first_;     // of each token in position_
};

}  // namespace gpt
