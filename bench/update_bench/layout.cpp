// SPDX-License-Identifier: Apache-2.0
#include "update_bench/layout.hpp"

#include <algorithm>
#include <numeric>

#include "core/round_up.hpp"

namespace outboard::update_bench {
namespace {

constexpr std::uint64_t kLineElems = 16;

/// All tensors as whole pieces, counted from the first.
std::vector<Piece> lay_out(std::span<const std::uint64_t> tensors) {
  std::vector<Piece> pieces;
  std::uint64_t offset = 0;
  for (std::uint32_t i = 0; i < tensors.size(); ++i) {
    pieces.push_back({.offset = offset, .elems = tensors[i], .tensor = i});
    offset += core::round_up(tensors[i], kLineElems);
  }
  return pieces;
}

/// Appends what of `piece` lies in [begin, end).
void cut(const Piece& piece, std::uint64_t begin, std::uint64_t end, std::vector<Piece>& out) {
  const std::uint64_t from = std::max(begin, piece.offset);
  const std::uint64_t to = std::min(end, piece.offset + piece.elems);
  if (from >= to) return;
  out.push_back({.offset = from,
                 .elems = to - from,
                 .first_element = piece.first_element + (from - piece.offset),
                 .tensor = piece.tensor});
}

}  // namespace

std::vector<NodeLayout> make_layout(std::span<const std::uint64_t> tensors,
                                    std::span<const std::uint32_t> threads_per_node,
                                    std::uint64_t cut_elems) {
  const std::vector<Piece> whole = lay_out(tensors);
  const std::uint64_t total =
      whole.empty() ? 0 : whole.back().offset + core::round_up(whole.back().elems, kLineElems);
  const std::uint64_t threads =
      std::accumulate(threads_per_node.begin(), threads_per_node.end(), std::uint64_t{0});
  const auto border = [&](std::uint64_t thread) {
    return std::min(total, core::round_up(total * thread / threads, cut_elems));
  };
  std::vector<NodeLayout> nodes;
  std::uint64_t thread = 0;
  for (const std::uint32_t count : threads_per_node) {
    NodeLayout node;
    const std::uint64_t first = border(thread);
    for (std::uint32_t i = 0; i < count; ++i, ++thread) {
      Slice slice{border(thread) - first, border(thread + 1) - first, {}};
      for (const Piece& piece : whole) {
        cut(piece, border(thread), border(thread + 1), slice.pieces);
      }
      for (Piece& piece : slice.pieces) piece.offset -= first;
      node.slices.push_back(std::move(slice));
    }
    node.elems = border(thread) - first;
    nodes.push_back(std::move(node));
  }
  return nodes;
}

std::vector<Piece> pieces_within(const NodeLayout& node, std::uint64_t begin, std::uint64_t end) {
  std::vector<Piece> joined;
  std::vector<Piece> found;
  for (const Slice& slice : node.slices) {
    for (const Piece& piece : slice.pieces) cut(piece, begin, end, found);
  }
  for (const Piece& piece : found) {
    Piece* last = joined.empty() ? nullptr : &joined.back();
    if (last != nullptr && last->tensor == piece.tensor) {
      last->elems += piece.elems;
    } else {
      joined.push_back(piece);
    }
  }
  return joined;
}

}  // namespace outboard::update_bench
