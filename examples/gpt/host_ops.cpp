// SPDX-License-Identifier: Apache-2.0
#include "host_ops.hpp"

#include <algorithm>
#include <cassert>

namespace gpt {

example::TileSize tile_size(std::size_t rows, std::size_t cols) {
  constexpr example::TileSize kLarge{.rows = 256, .cols = 256, .depth = 256};
  constexpr example::TileSize kSmall{.rows = 128, .cols = 128, .depth = 256};
  return divide_up(rows, kLarge.rows) * divide_up(cols, kLarge.cols) < 4 ? kSmall : kLarge;
}

std::span<float> HostOps::Lane::take(std::size_t elems) {
  assert(taken_ + elems <= floats_.size());
  const std::span<float> taken = std::span(floats_).subspan(taken_, elems);
  taken_ += elems;
  return taken;
}

std::size_t HostOps::lane_elems(const GptShape& shape) {
  const std::size_t d = shape.head_width();
  const std::size_t queries = std::min(kQueryRows, shape.context);
  const std::size_t attention = 4 * shape.context * d + queries * (3 * d + 2 * shape.context);
  const std::size_t loss = std::max(kLossRows, kTableVocab) * shape.width + 4 * kLossRows;
  const std::size_t rows = std::max(4 * shape.width, 2 * kGeluPiece);
  return std::max({attention, loss, rows});
}

HostOps::HostOps(const GptShape& shape, std::size_t threads)
    : workers_(std::max<std::size_t>(threads, 1)),
      moments_(shape.positions(shape.batch)),
      losses_(divide_up(shape.positions(shape.batch), kLossRows)),
      position_(shape.positions(shape.batch)),
      first_(shape.vocab + 1) {
  for (std::size_t i = 0; i < workers_.count(); ++i) lanes_.emplace_back(lane_elems(shape));
}

std::size_t HostOps::scratch_bytes() const {
  std::size_t bytes = moments_.size() * sizeof(Moments) + losses_.size() * sizeof(double) +
                      (position_.size() + first_.size()) * sizeof(std::uint32_t);
  for (const Lane& lane : lanes_) bytes += lane.bytes();
  return bytes;
}

std::size_t HostOps::thread_scratch_bytes() const {
  std::size_t bytes = 0;
  for (const Lane& lane : lanes_) bytes = std::max(bytes, lane.bytes());
  return bytes;
}

std::size_t thread_scratch_bytes(const GptShape& shape) {
  constexpr example::TileSize kTile;
  constexpr std::size_t kTiles =
      kTile.rows * kTile.depth + kTile.depth * kTile.cols + kTile.rows * kTile.cols;
  return (kTiles + HostOps::lane_elems(shape)) * sizeof(float);
}

std::unique_ptr<Ops> make_host_ops(const GptShape& shape, std::size_t threads) {
  return std::make_unique<HostOps>(shape, threads);
}

}  // namespace gpt
