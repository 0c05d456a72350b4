// SPDX-License-Identifier: Apache-2.0
#include "update_bench/layout.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace outboard::update_bench {
namespace {

using Sizes = std::vector<std::uint64_t>;
using Threads = std::vector<std::uint32_t>;

/// Whether the pieces of all slices are every element of every tensor, once and in order.
void expect_complete(const std::vector<NodeLayout>& nodes, const Sizes& sizes) {
  std::map<std::uint32_t, std::uint64_t> seen;
  for (const NodeLayout& node : nodes) {
    std::uint64_t at = 0;
    for (const Slice& slice : node.slices) {
      EXPECT_EQ(slice.begin, at);
      at = slice.end;
      for (const Piece& piece : slice.pieces) {
        EXPECT_EQ(piece.first_element, seen[piece.tensor]);
        EXPECT_GE(piece.offset, slice.begin);
        EXPECT_LE(piece.offset + piece.elems, slice.end);
        seen[piece.tensor] += piece.elems;
      }
    }
    EXPECT_EQ(at, node.elems);
  }
  for (std::uint32_t i = 0; i < sizes.size(); ++i) EXPECT_EQ(seen[i], sizes[i]) << "tensor " << i;
}

TEST(Layout, CoversEveryElementOnce) {
  for (const Threads& threads : {Threads{1}, Threads{2}, Threads{3, 2}, Threads{1, 1, 1}}) {
    for (const Sizes& sizes : {Sizes{100'000}, Sizes{17, 10'000, 1, 4'097, 33}, Sizes{64}}) {
      expect_complete(make_layout(sizes, threads, 64), sizes);
    }
  }
}

TEST(Layout, ThreadsStartAtCutsAndTensorsOnLines) {
  const auto nodes = make_layout(Sizes{100'001, 50'000}, Threads{2, 1}, 4096);
  std::uint64_t first = 0;
  for (const NodeLayout& node : nodes) {
    for (const Slice& slice : node.slices) {
      EXPECT_EQ((first + slice.begin) % 4096, 0U);
      for (const Piece& piece : slice.pieces) EXPECT_EQ(piece.offset % 16, 0U);
    }
    first += node.elems;
  }
}

TEST(Layout, SharesDifferByOneCutAtMost) {
  const auto nodes = make_layout(Sizes{1'000'000}, Threads{3, 4}, 64);
  std::uint64_t least = ~std::uint64_t{0};
  std::uint64_t most = 0;
  for (const NodeLayout& node : nodes) {
    for (const Slice& slice : node.slices) {
      least = std::min(least, slice.end - slice.begin);
      most = std::max(most, slice.end - slice.begin);
    }
  }
  EXPECT_LE(most - least, 64U);
}

TEST(Layout, PiecesWithinJoinWhatThreadsPart) {
  const auto nodes = make_layout(Sizes{1'000, 2'000}, Threads{4}, 64);
  const auto pieces = pieces_within(nodes[0], 500, 2'500);
  ASSERT_EQ(pieces.size(), 2U);
  EXPECT_EQ(pieces[0].offset, 500U);
  EXPECT_EQ(pieces[0].elems, 500U);
  EXPECT_EQ(pieces[0].first_element, 500U);
  EXPECT_EQ(pieces[1].offset, 1'008U);  // the next line of 16 elements
  EXPECT_EQ(pieces[1].elems, 2'500U - 1'008U);
  EXPECT_EQ(pieces[1].first_element, 0U);
  EXPECT_EQ(pieces[1].tensor, 1U);
}

}  // namespace
}  // namespace outboard::update_bench
