// SPDX-License-Identifier: Apache-2.0
/// The text: read, checked, and split into a training and a held-out part.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "../common/ngram.hpp"
#include "../common/split.hpp"
#include "../common/text_files.hpp"

namespace text {

struct Corpus : example::Split {
  std::vector<std::uint8_t> bytes;
  std::size_t files = 0;
  std::size_t skipped_files = 0;  ///< found in folders, but not UTF-8 text
};

/// Splits text that is in memory already.
/// @throws example::DataError if it is too short to have a held-out block.
[[nodiscard]] Corpus make_corpus(std::vector<std::uint8_t> bytes);

/// Reads and splits what example::load_text() reads.
/// @throws example::DataError as it does, and for text that is too short.
[[nodiscard]] Corpus load_corpus(const std::vector<std::filesystem::path>& paths);

/// Draws random examples from the training part: `context` bytes and the one after.
class TrainSampler {
 public:
  TrainSampler(const Corpus& corpus, std::size_t context, std::uint64_t seed);
  /// Fills rows of context + 1 bytes.
  void fill(std::span<std::uint8_t> rows);

 private:
  const Corpus& corpus_;
  std::size_t row_;
  example::RunSampler runs_;
};

/// At most `limit` held-out positions, evenly spread, each with `context` held-out bytes before it.
[[nodiscard]] std::vector<std::size_t> held_out_positions(const Corpus& corpus, std::size_t context,
                                                          std::size_t limit);

/// Counts which byte follows which in the training part.
[[nodiscard]] example::NGram count_pairs(const Corpus& corpus);
/// Mean -ln P of the bytes at `positions`, given the one before, in nats per byte.
[[nodiscard]] double order1_loss(const example::NGram& order1, const Corpus& corpus,
                                 std::span<const std::size_t> positions);

}  // namespace text
