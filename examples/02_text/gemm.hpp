// SPDX-License-Identifier: Apache-2.0
/// Working memory of the kernels, and the shared matrix products under this example's names.
#pragma once

#include <cstddef>
#include <vector>

#include "../common/halves.hpp"
#include "../common/tiles.hpp"

namespace text {

using example::Half;
using example::narrow;
using example::Operand;
using example::Tile;
using example::widen;

/// FP32 working memory of the kernels. Bounded by the tile sizes and the embedding table, whatever
/// the model's width and the batch. One kernel at a time uses it.
class Scratch {
 public:
  static constexpr std::size_t kTileRows = 256;
  static constexpr std::size_t kTileCols = 512;
  static constexpr std::size_t kTileDepth = 256;

  /// `table_elems`: elements of the embedding table, whose gradient is summed in FP32.
  explicit Scratch(std::size_t table_elems)
      : tiles({.rows = kTileRows, .cols = kTileCols, .depth = kTileDepth}),
        line(kTileCols),
        table(table_elems) {}
  [[nodiscard]] std::size_t bytes() const noexcept {
    return tiles.bytes() + (line.size() + table.size()) * sizeof(float);
  }

  example::TileScratch tiles;
  std::vector<float> line;   ///< one row of a tile
  std::vector<float> table;  ///< the embedding's gradient
};

}  // namespace text
