// SPDX-License-Identifier: Apache-2.0
#include "ngram.hpp"

#include <algorithm>

namespace example {
namespace {

/// At most three tokens side by side.
std::uint64_t key_of(std::span<const std::uint16_t> tokens) {
  std::uint64_t key = 0;
  for (const std::uint16_t token : tokens) key = (key << 16) | token;
  return key;
}

template <class Value>
Value value_of(const std::unordered_map<std::uint64_t, Value>& map, std::uint64_t key) {
  const auto found = map.find(key);
  return found == map.end() ? Value{} : found->second;
}

}  // namespace

void NGram::count(std::span<const std::uint16_t> run) {
  for (std::size_t at = 0; at < run.size(); ++at) {
    for (std::size_t length = 0; length <= std::min(order_, at); ++length) {
      Level& level = levels_[length];
      Context& context = level.contexts[key_of(run.subspan(at - length, length))];
      ++context.tokens;
      if (level.counts[key_of(run.subspan(at - length, length + 1))]++ == 0) ++context.types;
    }
  }
}

double NGram::probability(std::span<const std::uint16_t> before, std::uint16_t token) const {
  double p = 0.0;
  for (std::size_t length = 0; length <= std::min(order_, before.size()); ++length) {
    const std::uint64_t key = key_of(before.last(length));
    const Context context = value_of(levels_[length].contexts, key);
    const auto count = static_cast<double>(value_of(levels_[length].counts, key << 16 | token));
    const auto n = static_cast<double>(context.tokens);
    const auto types = static_cast<double>(context.types);
    if (length == 0) {
      p = (count + 1.0) / (n + static_cast<double>(vocabulary_));
    } else if (context.tokens > 0) {
      p = (count + types * p) / (n + types);
    }
  }
  return p;
}

}  // namespace example
