// SPDX-License-Identifier: Apache-2.0
#include "split.hpp"

#include <algorithm>
#include <numeric>

#include "text_files.hpp"

namespace example {
namespace {

std::size_t total(const std::vector<Range>& ranges) {
  return std::accumulate(ranges.begin(), ranges.end(), std::size_t{0},
                         [](std::size_t sum, const Range& r) { return sum + r.size(); });
}

}  // namespace

std::size_t Split::train_size() const {
  return total(train);
}
std::size_t Split::held_out_size() const {
  return total(held_out);
}

Split split_blocks(std::size_t size, const std::string& unit, std::size_t block) {
  const std::size_t period = block * Split::kHoldOutEvery;
  if (size < period) {
    throw DataError("the data has " + std::to_string(size) + " " + unit + "; at least " +
                    std::to_string(period) + " are needed to hold out a tenth in blocks of " +
                    std::to_string(block) + ": pass more data");
  }
  Split split;
  for (std::size_t begin = 0; begin < size; begin += period) {
    const std::size_t held = std::min(size, begin + period - block);
    const std::size_t end = std::min(size, begin + period);
    split.train.push_back({begin, held});
    if (held < end) split.held_out.push_back({held, end});
  }
  return split;
}

RunSampler::RunSampler(std::span<const Range> ranges, std::size_t length, std::uint64_t seed)
    : random_(seed) {
  for (const Range& range : ranges) {
    begin_.push_back(range.begin);
    first_.push_back(runs_);
    runs_ += range.size() >= length ? range.size() - length + 1 : 0;
  }
}

std::size_t RunSampler::draw() {
  const std::size_t run = random_.below(runs_);
  const auto after = std::upper_bound(first_.begin(), first_.end(), run);
  const auto range = static_cast<std::size_t>(after - first_.begin()) - 1;
  return begin_[range] + (run - first_[range]);
}

}  // namespace example
