// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "host_ops.hpp"

namespace gpt {

using example::narrow;
using example::Operand;
using example::Tile;
using example::widen;

template <class Store>
void HostOps::multiply(const Operand& a, const Operand& b, const Store& store) {
  const example::TileSize size = tile_size(a.product_rows(), b.product_cols());
  const std::size_t across = divide_up(b.product_cols(), size.cols);
  const std::size_t down = divide_up(a.product_rows(), size.rows);
  workers_.run(down * across, [&](std::size_t task, std::size_t thread) {
    Lane& lane = lanes_[thread].restart();
    store(
        multiply_tile(a, b, task / across * size.rows, task % across * size.cols, size, lane.tiles),
        lane);
  });
}

void HostOps::linear_forward(const LinearForward& k) {
  const Operand x{k.x, k.shape.rows, k.shape.in};
  const Operand w{k.w, k.shape.in, k.shape.out};
  multiply(x, w, [&](const Tile& tile, Lane& lane) {
    const std::span<float> bias = lane.take(tile.cols);
    const std::span<float> other = lane.take(tile.cols);
    widen(k.b.subspan(tile.col0, tile.cols), bias);
    for (std::size_t r = 0; r < tile.rows; ++r) {
      const std::span<float> row = tile.row(r);
      const std::size_t at = (tile.row0 + r) * k.shape.out + tile.col0;
      rows_.add(bias.data(), row.data(), tile.cols);
      if (!k.residual.empty()) {
        widen(k.residual.subspan(at, tile.cols), other);
        rows_.add(other.data(), row.data(), tile.cols);
      }
      narrow(row, k.y.subspan(at, tile.cols));
    }
  });
}

void HostOps::linear_backward_weight(const LinearBackwardWeight& k) {
  const Operand x{k.x, k.shape.rows, k.shape.in, true};
  const Operand dy{k.dy, k.shape.rows, k.shape.out};
  multiply(x, dy, [&](const Tile& tile, Lane&) {
    for (std::size_t r = 0; r < tile.rows; ++r) {
      narrow(tile.row(r), k.dw.subspan((tile.row0 + r) * k.shape.out + tile.col0, tile.cols));
    }
  });
  workers_.run(divide_up(k.shape.out, kColumns), [&](std::size_t task, std::size_t thread) {
    Lane& lane = lanes_[thread].restart();
    const std::size_t col0 = task * kColumns;
    const std::size_t cols = std::min(kColumns, k.shape.out - col0);
    const std::span<float> sum = lane.take(cols);
    const std::span<float> line = lane.take(cols);
    std::fill(sum.begin(), sum.end(), 0.0f);
    for (std::size_t r = 0; r < k.shape.rows; ++r) {
      widen(k.dy.subspan(r * k.shape.out + col0, cols), line);
      rows_.add(line.data(), sum.data(), cols);
    }
    narrow(sum, k.db.subspan(col0, cols));
  });
}

void HostOps::linear_backward_input(const LinearBackwardInput& k) {
  const Operand dy{k.dy, k.shape.rows, k.shape.out};
  const Operand w{k.w, k.shape.in, k.shape.out, true};
  multiply(dy, w, [&](const Tile& tile, Lane&) {
    for (std::size_t r = 0; r < tile.rows; ++r) {
      narrow(tile.row(r), k.dx.subspan((tile.row0 + r) * k.shape.in + tile.col0, tile.cols));
    }
  });
}

}  // namespace gpt
