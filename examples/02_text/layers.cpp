// SPDX-License-Identifier: Apache-2.0
#include "layers.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "outboard/half.hpp"

namespace text {
namespace {

struct RowLoss {
  double loss;
  std::array<float, kVocabulary> probability;
};

RowLoss softmax_row(std::span<const Half> logits, std::uint8_t target) {
  std::array<float, kVocabulary> z;
  widen(logits, z);
  const float top = *std::max_element(z.begin(), z.end());
  RowLoss row;
  float sum = 0.0f;
  for (std::size_t i = 0; i < kVocabulary; ++i) {
    row.probability[i] = std::exp(z[i] - top);
    sum += row.probability[i];
  }
  for (float& p : row.probability) p /= sum;
  row.loss = std::log(static_cast<double>(sum)) + static_cast<double>(top - z[target]);
  return row;
}

void add_line(std::span<float> row, std::span<const float> line) {
  for (std::size_t i = 0; i < row.size(); ++i) row[i] += line[i];
}

// A NaN must stay a NaN, or an overflow would hide behind max().
void clamp_negative(std::span<float> row) {
  for (float& value : row) value = value < 0.0f ? 0.0f : value;
}

void keep_where_active(std::span<float> gradient, std::span<const Half> activation) {
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    gradient[i] = activation[i] == 0 ? 0.0f : gradient[i];
  }
}

}  // namespace

void embed_forward(const EmbedForward& k) {
  std::size_t at = 0;
  for (std::size_t row = 0; row < k.tokens.rows; ++row) {
    for (const std::uint8_t byte : k.tokens.context_of(row)) {
      const auto vector = k.table.subspan(byte * k.embed, k.embed);
      std::copy(vector.begin(), vector.end(), k.out.subspan(at, k.embed).begin());
      at += k.embed;
    }
  }
}

void embed_backward(const EmbedBackward& k, Scratch& scratch) {
  std::fill(scratch.table.begin(), scratch.table.end(), 0.0f);
  std::size_t at = 0;
  for (std::size_t row = 0; row < k.tokens.rows; ++row) {
    for (const std::uint8_t byte : k.tokens.context_of(row)) {
      float* sum = scratch.table.data() + byte * k.embed;
      for (std::size_t i = 0; i < k.embed; ++i) {
        sum[i] += outboard::half_to_float(k.gradient[at + i]);
      }
      at += k.embed;
    }
  }
  narrow(scratch.table, k.table_gradient);
}

void linear_forward(const LinearForward& k, Scratch& scratch) {
  const Operand x{k.x, k.shape.rows, k.shape.in};
  const Operand w{k.w, k.shape.in, k.shape.out};
  example::multiply(x, w, scratch.tiles, [&](const Tile& tile) {
    const std::span<float> bias = std::span(scratch.line).first(tile.cols);
    widen(k.b.subspan(tile.col0, tile.cols), bias);
    for (std::size_t r = 0; r < tile.rows; ++r) {
      add_line(tile.row(r), bias);
      if (k.relu) clamp_negative(tile.row(r));
      narrow(tile.row(r), k.y.subspan((tile.row0 + r) * k.shape.out + tile.col0, tile.cols));
    }
  });
}

void linear_backward_weight(const LinearBackwardWeight& k, Scratch& scratch) {
  const Operand x{k.x, k.shape.rows, k.shape.in, true};
  const Operand dy{k.dy, k.shape.rows, k.shape.out};
  example::multiply(x, dy, scratch.tiles, [&](const Tile& tile) {
    for (std::size_t r = 0; r < tile.rows; ++r) {
      narrow(tile.row(r), k.dw.subspan((tile.row0 + r) * k.shape.out + tile.col0, tile.cols));
    }
  });
  for (std::size_t col0 = 0; col0 < k.shape.out; col0 += Scratch::kTileCols) {
    const std::size_t cols = std::min(Scratch::kTileCols, k.shape.out - col0);
    const std::span<float> sum = std::span(scratch.tiles.c).first(cols);
    const std::span<float> line = std::span(scratch.line).first(cols);
    std::fill(sum.begin(), sum.end(), 0.0f);
    for (std::size_t r = 0; r < k.shape.rows; ++r) {
      widen(k.dy.subspan(r * k.shape.out + col0, cols), line);
      add_line(sum, line);
    }
    narrow(sum, k.db.subspan(col0, cols));
  }
}

void linear_backward_input(const LinearBackwardInput& k, Scratch& scratch) {
  const Operand dy{k.dy, k.shape.rows, k.shape.out};
  const Operand w{k.w, k.shape.in, k.shape.out, true};
  example::multiply(dy, w, scratch.tiles, [&](const Tile& tile) {
    for (std::size_t r = 0; r < tile.rows; ++r) {
      const auto x = k.x.subspan((tile.row0 + r) * k.shape.in + tile.col0, tile.cols);
      if (k.relu) keep_where_active(tile.row(r), x);
      narrow(tile.row(r), x);
    }
  });
}

double softmax_loss(const SoftmaxLoss& k) {
  double total = 0.0;
  for (std::size_t row = 0; row < k.tokens.rows; ++row) {
    const auto logits = k.logits.subspan(row * kVocabulary, kVocabulary);
    RowLoss result = softmax_row(logits, k.tokens.target_of(row));
    total += result.loss;
    if (!k.gradient_scale) continue;
    result.probability[k.tokens.target_of(row)] -= 1.0f;
    for (float& p : result.probability) p *= *k.gradient_scale;
    narrow(result.probability, logits);
  }
  return total;
}

}  // namespace text
