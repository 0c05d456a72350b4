// SPDX-License-Identifier: Apache-2.0
/// What is trained on, and what is held out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "random.hpp"

namespace example {

struct Range {
  std::size_t begin = 0, end = 0;
  [[nodiscard]] std::size_t size() const { return end - begin; }
};

/// Every tenth block is held out. Files differ in style, so the last tenth would measure how much
/// the last files differ from the first; blocks from all over measure the model. Nothing crosses a
/// border: no example for training contains a held-out element, nor the other way round.
struct Split {
  static constexpr std::size_t kBlock = 4096;
  static constexpr std::size_t kHoldOutEvery = 10;

  std::vector<Range> train, held_out;

  [[nodiscard]] std::size_t train_size() const;
  [[nodiscard]] std::size_t held_out_size() const;
};

/// Splits `size` elements, which messages call `unit`, as "bytes". `block` is Split::kBlock, or
/// more where examples are longer.
/// @throws DataError if they are too few to have a held-out block.
[[nodiscard]] Split split_blocks(std::size_t size, const std::string& unit,
                                 std::size_t block = Split::kBlock);

/// Draws random runs of `length` elements, each inside one range and all equally likely.
class RunSampler {
 public:
  /// At least one range must be `length` long or longer.
  RunSampler(std::span<const Range> ranges, std::size_t length, std::uint64_t seed);
  /// Where the next run begins.
  [[nodiscard]] std::size_t draw();

 private:
  std::vector<std::size_t> begin_;  // of each range
  std::vector<std::size_t> first_;  // runs before each range
  std::size_t runs_ = 0;
  Random random_;
};

}  // namespace example
