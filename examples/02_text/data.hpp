// SPDX-License-Identifier: Apache-2.0
/// The text: read, checked, and split into a training and a held-out part.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "../common/random.hpp"

namespace text {

using example::Random;

/// What is wrong with the data, which file, how much, and what to do about it.
class DataError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Range {
  std::size_t begin = 0, end = 0;
  [[nodiscard]] std::size_t size() const { return end - begin; }
};

/// Every tenth block of 4 KiB is held out. Files differ in style, so the last tenth of the bytes
/// would measure how much the last files differ from the first; blocks from all over measure the
/// model. Nothing crosses a border: no example for training contains a held-out byte, nor the
/// other way round.
struct Corpus {
  static constexpr std::size_t kBlock = 4096;
  static constexpr std::size_t kHoldOutEvery = 10;

  std::vector<std::uint8_t> bytes;
  std::vector<Range> train, held_out;
  std::size_t files = 0;
  std::size_t skipped_files = 0;  ///< found in folders, but not UTF-8 text

  [[nodiscard]] std::size_t train_bytes() const;
  [[nodiscard]] std::size_t held_out_bytes() const;
};

/// Well-formed UTF-8 without NUL.
[[nodiscard]] bool is_text(std::span<const std::uint8_t> bytes);

/// Splits text that is in memory already.
/// @throws DataError if it is too short to have a held-out block.
[[nodiscard]] Corpus make_corpus(std::vector<std::uint8_t> bytes);

/// Reads files, and folders with all that is below them (in the order of their names; symbolic
/// links and files that are not text are passed over).
/// @throws DataError for a path that is missing, a named file that is empty or not text, and when
/// all together is empty, too short, or more than 1 GiB.
[[nodiscard]] Corpus load_corpus(const std::vector<std::filesystem::path>& paths);

/// Draws random examples from the training part: `context` bytes and the one after.
class TrainSampler {
 public:
  TrainSampler(const Corpus& corpus, std::size_t context, std::uint64_t seed);
  /// Fills rows of context + 1 bytes.
  void fill(std::span<std::uint8_t> rows);

 private:
  const Corpus& corpus_;
  std::size_t context_;
  Random random_;
  std::vector<std::size_t> first_;  // examples before each range
  std::size_t examples_ = 0;
};

/// At most `limit` held-out positions, evenly spread, each with `context` held-out bytes before it.
[[nodiscard]] std::vector<std::size_t> held_out_positions(const Corpus& corpus, std::size_t context,
                                                          std::size_t limit);

}  // namespace text
