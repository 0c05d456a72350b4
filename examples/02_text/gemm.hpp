// SPDX-License-Identifier: Apache-2.0
/// Matrix products of FP16 matrices with FP32 accumulation, tile by tile.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "halves.hpp"

namespace text {

/// FP32 working memory of the kernels: what registers and shared memory are on a GPU, so it is not
/// device memory. Bounded by the tile sizes and the embedding table, whatever the model's width and
/// the batch. One kernel at a time uses it. Making one sets OpenBLAS to one thread for the whole
/// process, so that the bits of a product do not depend on the machine's cores.
class Scratch {
 public:
  static constexpr std::size_t kTileRows = 256;
  static constexpr std::size_t kTileCols = 512;
  static constexpr std::size_t kTileDepth = 256;

  /// `table_elems`: elements of the embedding table, whose gradient is summed in FP32.
  explicit Scratch(std::size_t table_elems);
  [[nodiscard]] std::size_t bytes() const noexcept;

  std::vector<float> a, b, c;  ///< one tile of each operand and of the product
  std::vector<float> line;     ///< one row of a tile
  std::vector<float> table;    ///< the embedding's gradient
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

/// A block of the product, still in FP32.
struct Tile {
  std::size_t row0 = 0, rows = 0;
  std::size_t col0 = 0, cols = 0;
  std::span<float> values;

  [[nodiscard]] std::span<float> row(std::size_t r) const { return values.subspan(r * cols, cols); }
};

/// The tile of a*b that starts at (row0, col0); its values are in `scratch.c` until the next call.
/// Depth tiles are added up in a fixed order.
[[nodiscard]] Tile multiply_tile(const Operand& a, const Operand& b, std::size_t row0,
                                 std::size_t col0, Scratch& scratch);

/// Hands every tile of a*b to `store`, which rounds it to where it belongs.
template <class Store>
void multiply(const Operand& a, const Operand& b, Scratch& scratch, const Store& store) {
  for (std::size_t row0 = 0; row0 < a.product_rows(); row0 += Scratch::kTileRows) {
    for (std::size_t col0 = 0; col0 < b.product_cols(); col0 += Scratch::kTileCols) {
      store(multiply_tile(a, b, row0, col0, scratch));
    }
  }
}

}  // namespace text
