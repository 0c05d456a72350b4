// SPDX-License-Identifier: Apache-2.0
/// Matrix products of FP16 matrices with FP32 accumulation, tile by tile.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "halves.hpp"

namespace example {

/// The largest tile of a product. Part of the order of its sums: `depth` products are added by one
/// call of OpenBLAS, whose sums depend on `rows` and `cols` as well.
struct TileSize {
  std::size_t rows = 256;
  std::size_t cols = 256;
  std::size_t depth = 256;
};

/// FP32 working memory of one thread's products: what registers and shared memory are on a GPU, so
/// it is not device memory. Making one sets OpenBLAS to one thread for the whole process, so that
/// the bits of a product do not depend on the machine's cores.
class TileScratch {
 public:
  explicit TileScratch(const TileSize& size);
  [[nodiscard]] const TileSize& size() const noexcept { return size_; }
  [[nodiscard]] std::size_t bytes() const noexcept;

  std::vector<float> a, b, c;  ///< one tile of each operand and of the product

 private:
  TileSize size_;
};

/// A row-major matrix of `rows` x `cols` as it is stored; `transposed` multiplies by its transpose.
struct Operand {
  std::span<const Half> values;
  std::size_t rows = 0;
  std::size_t cols = 0;
  bool transposed = false;

  [[nodiscard]] std::size_t product_rows() const { return transposed ? cols : rows; }
  [[nodiscard]] std::size_t product_cols() const { return transposed ? rows : cols; }
};

/// A block of a matrix as it is stored.
struct Block {
  std::size_t row0 = 0, rows = 0, col0 = 0, cols = 0;
};
/// Widens one block to packed rows of FP32. `out` may be longer.
void widen_block(const Operand& matrix, const Block& block, std::span<float> out);

/// A block of the product, still in FP32.
struct Tile {
  std::size_t row0 = 0, rows = 0;
  std::size_t col0 = 0, cols = 0;
  std::span<float> values;

  [[nodiscard]] std::span<float> row(std::size_t r) const { return values.subspan(r * cols, cols); }
};

/// The tile of a*b that starts at (row0, col0), of at most `size` (which `scratch` has room for);
/// its values are in `scratch.c` until the next call. Depth tiles are added up in a fixed order.
[[nodiscard]] Tile multiply_tile(const Operand& a, const Operand& b, std::size_t row0,
                                 std::size_t col0, const TileSize& size, TileScratch& scratch);

/// Hands every tile of a*b to `store`, which rounds it to where it belongs.
template <class Store>
void multiply(const Operand& a, const Operand& b, TileScratch& scratch, const Store& store) {
  const TileSize& size = scratch.size();
  for (std::size_t row0 = 0; row0 < a.product_rows(); row0 += size.rows) {
    for (std::size_t col0 = 0; col0 < b.product_cols(); col0 += size.cols) {
      store(multiply_tile(a, b, row0, col0, size, scratch));
    }
  }
}

}  // namespace example
