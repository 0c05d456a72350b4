// SPDX-License-Identifier: Apache-2.0
#include "data.hpp"

#include <algorithm>
#include <cmath>

namespace text {

Corpus make_corpus(std::vector<std::uint8_t> bytes) {
  return {example::split_blocks(bytes.size(), "bytes"), std::move(bytes), 1, 0};
}

Corpus load_corpus(const std::vector<std::filesystem::path>& paths) {
  example::Text text = example::load_text(paths);
  Corpus corpus = make_corpus(std::move(text.bytes));
  corpus.files = text.files;
  corpus.skipped_files = text.skipped_files;
  return corpus;
}

TrainSampler::TrainSampler(const Corpus& corpus, std::size_t context, std::uint64_t seed)
    : corpus_(corpus), row_(context + 1), runs_(corpus.train, row_, seed) {}

void TrainSampler::fill(std::span<std::uint8_t> rows) {
  for (std::size_t at = 0; at < rows.size(); at += row_) {
    const auto from = corpus_.bytes.begin() + static_cast<std::ptrdiff_t>(runs_.draw());
    std::copy_n(from, row_, rows.subspan(at).begin());
  }
}

std::vector<std::size_t> held_out_positions(const Corpus& corpus, std::size_t context,
                                            std::size_t limit) {
  std::vector<std::size_t> all;
  for (const example::Range& range : corpus.held_out) {
    for (std::size_t at = range.begin + context; at < range.end; ++at) all.push_back(at);
  }
  if (all.size() <= limit) return all;
  std::vector<std::size_t> some(limit);
  for (std::size_t i = 0; i < limit; ++i) some[i] = all[i * all.size() / limit];
  return some;
}

example::NGram count_pairs(const Corpus& corpus) {
  example::NGram order1(1, 256);
  for (const example::Range& range : corpus.train) {
    const auto run = std::span(corpus.bytes).subspan(range.begin, range.size());
    order1.count(std::vector<std::uint16_t>(run.begin(), run.end()));
  }
  return order1;
}

double order1_loss(const example::NGram& order1, const Corpus& corpus,
                   std::span<const std::size_t> positions) {
  double sum = 0.0;
  for (const std::size_t at : positions) {
    const std::uint16_t before = corpus.bytes[at - 1];
    sum -= std::log(order1.probability({&before, 1}, corpus.bytes[at]));
  }
  return sum / static_cast<double>(positions.size());
}

}  // namespace text
