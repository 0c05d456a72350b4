// SPDX-License-Identifier: Apache-2.0
#include "tiles.hpp"

#include <cblas.h>

namespace example {
namespace {

int as_int(std::size_t value) {
  return static_cast<int>(value);
}

}  // namespace

void widen_block(const Operand& matrix, const Block& block, std::span<float> out) {
  for (std::size_t r = 0; r < block.rows; ++r) {
    const std::size_t at = (block.row0 + r) * matrix.cols + block.col0;
    widen(matrix.values.subspan(at, block.cols), out.subspan(r * block.cols, block.cols));
  }
}

TileScratch::TileScratch(const TileSize& size)
    : a(size.rows * size.depth), b(size.depth * size.cols), c(size.rows * size.cols), size_(size) {
  openblas_set_num_threads(1);
}

std::size_t TileScratch::bytes() const noexcept {
  return (a.size() + b.size() + c.size()) * sizeof(float);
}

Tile multiply_tile(const Operand& a, const Operand& b, std::size_t row0, std::size_t col0,
                   const TileSize& size, TileScratch& scratch) {
  const std::size_t rows = std::min(size.rows, a.product_rows() - row0);
  const std::size_t cols = std::min(size.cols, b.product_cols() - col0);
  const std::size_t depth = a.product_cols();
  const std::span<float> c = std::span(scratch.c).first(rows * cols);
  for (std::size_t k0 = 0; k0 < depth; k0 += size.depth) {
    const std::size_t ks = std::min(size.depth, depth - k0);
    widen_block(a, a.transposed ? Block{k0, ks, row0, rows} : Block{row0, rows, k0, ks}, scratch.a);
    widen_block(b, b.transposed ? Block{col0, cols, k0, ks} : Block{k0, ks, col0, cols}, scratch.b);
    cblas_sgemm(CblasRowMajor, a.transposed ? CblasTrans : CblasNoTrans,
                b.transposed ? CblasTrans : CblasNoTrans, as_int(rows), as_int(cols), as_int(ks),
                1.0f, scratch.a.data(), as_int(a.transposed ? rows : ks), scratch.b.data(),
                as_int(b.transposed ? ks : cols), k0 == 0 ? 0.0f : 1.0f, c.data(), as_int(cols));
  }
  return {.row0 = row0, .rows = rows, .col0 = col0, .cols = cols, .values = c};
}

}  // namespace example
