// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "host_ops.hpp"
#include "sgemm.hpp"

namespace gpt {
namespace {

using example::Operand;
using example::Tile;

constexpr example::TileSize kLossTile{.rows = kLossRows, .cols = kLossVocab, .depth = 256};
constexpr example::TileSize kTableTile{.rows = kTableRows, .cols = kTableVocab, .depth = 256};
constexpr std::size_t kWidth = 256;  // columns of the width that are widened at once

struct HeadOperands {
  Operand h, wte, wte_transposed;
  explicit HeadOperands(const Head& head)
      : h{head.h, head.tokens.positions(), head.width},
        wte{head.wte, head.vocab, head.width},
        wte_transposed{head.wte, head.vocab, head.width, true} {}
};

/// Turns logits into their gradient: (softmax - one_hot) * scale.
struct LogitGradient {
  const TokenRows& tokens;
  std::span<const float> log_sum;
  float scale;

  void operator()(const Tile& tile, const RowKernels& rows) const {
    for (std::size_t r = 0; r < tile.rows; ++r) {
      const std::size_t position = tile.row0 + r;
      const std::span<float> row = tile.row(r);
      rows.softmax(log_sum[position], scale, row.data(), row.size());
      const std::size_t target = tokens.target(position);
      if (target >= tile.col0 && target < tile.col0 + tile.cols) row[target - tile.col0] -= scale;
    }
  }
};

/// The loss of a block of positions, one part of the vocabulary after the other.
class LossBlock {
 public:
  LossBlock(const LossForward& k, std::size_t row0, HostOps::Lane& lane, const RowKernels& rows)
      : k_(k),
        operands_(k.head),
        row0_(row0),
        rows_count_(std::min(kLossRows, k.head.tokens.positions() - row0)),
        lane_(lane),
        rows_(rows) {}

  double forward();
  void backward(float scale);

 private:
  [[nodiscard]] Tile logits(std::size_t vocab0) {
    return multiply_tile(operands_.h, operands_.wte_transposed, row0_, vocab0, kLossTile,
                         lane_.tiles);
  }
  void add_to_dh(const Tile& gradient, std::span<float> dh);

  const LossForward& k_;
  HeadOperands operands_;
  std::size_t row0_, rows_count_;
  HostOps::Lane& lane_;
  const RowKernels& rows_;
  Tile last_{};  // still in the lane's tiles after forward()
};

double LossBlock::forward() {
  const std::span<float> top = lane_.take(rows_count_), sum = lane_.take(rows_count_);
  const std::span<float> hit = lane_.take(rows_count_);
  for (std::size_t vocab0 = 0; vocab0 < k_.head.vocab; vocab0 += kLossVocab) {
    const Tile tile = last_ = logits(vocab0);
    for (std::size_t r = 0; r < rows_count_; ++r) {
      const float* row = tile.row(r).data();
      const float largest = rows_.largest(row, tile.cols);
      const float before = vocab0 == 0 ? largest : top[r];
      top[r] = largest > before ? largest : before;
      const float kept = vocab0 == 0 ? 0.0f : sum[r] * std::exp(before - top[r]);
      sum[r] = kept + rows_.sum_of_exp(row, top[r], tile.cols);
      const std::size_t target = k_.head.tokens.target(row0_ + r);
      if (target >= vocab0 && target < vocab0 + tile.cols) hit[r] = row[target - vocab0];
    }
  }
  double loss = 0.0;
  for (std::size_t r = 0; r < rows_count_; ++r) {
    const double log_sum = static_cast<double>(top[r]) + std::log(static_cast<double>(sum[r]));
    k_.log_sum[row0_ + r] = static_cast<float>(log_sum);
    loss += log_sum - static_cast<double>(hit[r]);
  }
  return loss;
}

void LossBlock::add_to_dh(const Tile& gradient, std::span<float> dh) {
  const std::size_t width = k_.head.width;
  for (std::size_t col0 = 0; col0 < width; col0 += kWidth) {
    const std::size_t cols = std::min(kWidth, width - col0);
    widen_block(operands_.wte, {gradient.col0, gradient.cols, col0, cols}, lane_.tiles.b);
    sgemm({.rows = gradient.rows,
           .cols = cols,
           .depth = gradient.cols,
           .a = {gradient.values.data(), gradient.cols},
           .b = {lane_.tiles.b.data(), cols},
           .c = dh.data() + col0,
           .c_stride = width,
           .keep = gradient.col0 == 0 ? 0.0f : 1.0f});
  }
}

void LossBlock::backward(float scale) {
  const std::size_t width = k_.head.width;
  const std::span<float> dh = lane_.take(rows_count_ * width);
  const LogitGradient gradient{k_.head.tokens, k_.log_sum, scale};
  for (std::size_t vocab0 = 0; vocab0 < k_.head.vocab; vocab0 += kLossVocab) {
    const Tile tile = k_.head.vocab <= kLossVocab ? last_ : logits(vocab0);
    gradient(tile, rows_);
    add_to_dh(tile, dh);
  }
  for (std::size_t r = 0; r < rows_count_; ++r) {
    example::narrow(dh.subspan(r * width, width), k_.dh.subspan((row0_ + r) * width, width));
  }
}

}  // namespace

double HostOps::loss_forward(const LossForward& k) {
  const std::size_t blocks = divide_up(k.head.tokens.positions(), kLossRows);
  workers_.run(blocks, [&](std::size_t task, std::size_t thread) {
    LossBlock block(k, task * kLossRows, lanes_[thread].restart(), rows_);
    losses_[task] = block.forward();
    if (k.scale) block.backward(*k.scale);
  });
  double loss = 0.0;
  for (std::size_t i = 0; i < blocks; ++i) loss += losses_[i];
  return loss;
}

void HostOps::loss_backward_table(const LossBackwardTable& k) {
  const HeadOperands operands(k.head);
  const LogitGradient gradient{k.head.tokens, k.log_sum, k.scale};
  const std::size_t width = k.head.width;
  workers_.run(divide_up(k.head.vocab, kTableVocab), [&](std::size_t task, std::size_t thread) {
    Lane& lane = lanes_[thread].restart();
    const std::size_t vocab0 = task * kTableVocab;
    const std::size_t entries = std::min(kTableVocab, k.head.vocab - vocab0);
    const std::span<float> sum = lane.take(entries * width);
    for (std::size_t row0 = 0; row0 < k.head.tokens.positions(); row0 += kTableRows) {
      const Tile tile =
          multiply_tile(operands.h, operands.wte_transposed, row0, vocab0, kTableTile, lane.tiles);
      gradient(tile, rows_);
      for (std::size_t col0 = 0; col0 < width; col0 += kWidth) {
        const std::size_t cols = std::min(kWidth, width - col0);
        widen_block(operands.h, {row0, tile.rows, col0, cols}, lane.tiles.a);
        sgemm({.rows = entries,
               .cols = cols,
               .depth = tile.rows,
               .a = {tile.values.data(), entries, true},
               .b = {lane.tiles.a.data(), cols},
               .c = sum.data() + col0,
               .c_stride = width,
               .keep = row0 == 0 ? 0.0f : 1.0f});
      }
    }
    example::narrow(sum, k.dwte.subspan(vocab0 * width, entries * width));
  });
}

void HostOps::logits(const Logits& k) {
  const Operand h{k.h, 1, k.width};
  const Operand wte{k.wte, k.vocab, k.width, true};
  workers_.run(divide_up(k.vocab, kLossVocab), [&](std::size_t task, std::size_t thread) {
    const Tile tile = multiply_tile(h, wte, 0, task * kLossVocab, kLossTile, lanes_[thread].tiles);
    std::copy(tile.values.begin(), tile.values.end(), k.out.subspan(tile.col0).begin());
  });
}

}  // namespace gpt
