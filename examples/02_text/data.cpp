// SPDX-License-Identifier: Apache-2.0
#include "data.hpp"

#include <algorithm>
#include <fstream>
#include <numeric>
#include <system_error>

namespace text {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxBytes = std::size_t{1} << 30;

std::size_t total(const std::vector<Range>& ranges) {
  return std::accumulate(ranges.begin(), ranges.end(), std::size_t{0},
                         [](std::size_t sum, const Range& r) { return sum + r.size(); });
}

/// Length of the UTF-8 sequence that starts with `lead`, and the smallest code point it may carry;
/// length 0 if none starts so.
struct Sequence {
  std::size_t length;
  std::uint32_t lowest;
  std::uint32_t lead_bits;
};
Sequence sequence_of(std::uint8_t lead) {
  if (lead < 0x80) return {1, 1, lead};
  if ((lead & 0xE0) == 0xC0) return {2, 0x80, lead & 0x1Fu};
  if ((lead & 0xF0) == 0xE0) return {3, 0x800, lead & 0x0Fu};
  if ((lead & 0xF8) == 0xF0) return {4, 0x10000, lead & 0x07u};
  return {0, 0, 0};
}

/// Bytes of the code point at the front; 0 if it is not well-formed.
std::size_t code_point(std::span<const std::uint8_t> bytes) {
  const Sequence sequence = sequence_of(bytes.front());
  if (sequence.length == 0 || sequence.length > bytes.size()) return 0;
  std::uint32_t value = sequence.lead_bits;
  for (std::size_t i = 1; i < sequence.length; ++i) {
    if ((bytes[i] & 0xC0) != 0x80) return 0;
    value = (value << 6) | (bytes[i] & 0x3Fu);
  }
  const bool surrogate = value >= 0xD800 && value <= 0xDFFF;
  return value < sequence.lowest || value > 0x10FFFF || surrogate ? 0 : sequence.length;
}

std::vector<std::uint8_t> read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::error_code error;
  const std::uintmax_t size = fs::file_size(path, error);
  if (!file || error) {
    throw DataError("cannot read " + path.string() + "; check the path and its permissions");
  }
  if (size > kMaxBytes) {
    throw DataError(path.string() + " has " + std::to_string(size) + " bytes; at most " +
                    std::to_string(kMaxBytes) + " are read: pass a part of it");
  }
  std::vector<std::uint8_t> bytes(size);
  file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(size));
  bytes.resize(static_cast<std::size_t>(file.gcount()));
  return bytes;
}

void append(Corpus& corpus, const std::vector<std::uint8_t>& bytes) {
  if (corpus.bytes.size() + bytes.size() > kMaxBytes) {
    throw DataError("the data has more than " + std::to_string(kMaxBytes) +
                    " bytes; pass fewer files");
  }
  corpus.bytes.insert(corpus.bytes.end(), bytes.begin(), bytes.end());
  ++corpus.files;
}

void add_file(Corpus& corpus, const fs::path& path) {
  const auto bytes = read_file(path);
  if (bytes.empty()) throw DataError(path.string() + " is empty; pass a file with text");
  if (!is_text(bytes)) {
    throw DataError(path.string() + " is not UTF-8 text; convert it or pass another file");
  }
  append(corpus, bytes);
}

void add_folder(Corpus& corpus, const fs::path& folder) {
  std::vector<fs::path> files;
  const auto options = fs::directory_options::skip_permission_denied;
  for (const auto& entry : fs::recursive_directory_iterator(folder, options)) {
    if (!entry.is_symlink() && entry.is_regular_file()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  for (const auto& path : files) {
    std::ifstream readable(path, std::ios::binary);
    const auto bytes = readable ? read_file(path) : std::vector<std::uint8_t>{};
    if (bytes.empty() || !is_text(bytes)) {
      ++corpus.skipped_files;
    } else {
      append(corpus, bytes);
    }
  }
}

void split(Corpus& corpus) {
  const std::size_t size = corpus.bytes.size();
  constexpr std::size_t kPeriod = Corpus::kBlock * Corpus::kHoldOutEvery;
  if (size < kPeriod) {
    throw DataError("the data has " + std::to_string(size) + " bytes; at least " +
                    std::to_string(kPeriod) +
                    " are needed to hold out a tenth in blocks of 4 KiB: pass more text");
  }
  for (std::size_t begin = 0; begin < size; begin += kPeriod) {
    const std::size_t held = std::min(size, begin + kPeriod - Corpus::kBlock);
    const std::size_t end = std::min(size, begin + kPeriod);
    corpus.train.push_back({begin, held});
    if (held < end) corpus.held_out.push_back({held, end});
  }
}

}  // namespace

std::size_t Corpus::train_bytes() const {
  return total(train);
}
std::size_t Corpus::held_out_bytes() const {
  return total(held_out);
}

bool is_text(std::span<const std::uint8_t> bytes) {
  while (!bytes.empty()) {
    const std::size_t length = bytes.front() == 0 ? 0 : code_point(bytes);
    if (length == 0) return false;
    bytes = bytes.subspan(length);
  }
  return true;
}

Corpus make_corpus(std::vector<std::uint8_t> bytes) {
  Corpus corpus;
  corpus.bytes = std::move(bytes);
  corpus.files = 1;
  split(corpus);
  return corpus;
}

Corpus load_corpus(const std::vector<fs::path>& paths) {
  Corpus corpus;
  for (const auto& path : paths) {
    if (!fs::exists(path)) {
      throw DataError(path.string() + " does not exist; pass files or folders of UTF-8 text");
    }
    fs::is_directory(path) ? add_folder(corpus, path) : add_file(corpus, path);
  }
  if (corpus.bytes.empty()) {
    throw DataError("no text found: 0 files read, " + std::to_string(corpus.skipped_files) +
                    " passed over as empty or not UTF-8; pass files or folders of UTF-8 text");
  }
  split(corpus);
  return corpus;
}

TrainSampler::TrainSampler(const Corpus& corpus, std::size_t context, std::uint64_t seed)
    : corpus_(corpus), context_(context), random_(seed) {
  for (const Range& range : corpus.train) {
    first_.push_back(examples_);
    examples_ += range.size() > context ? range.size() - context : 0;
  }
}

void TrainSampler::fill(std::span<std::uint8_t> rows) {
  for (std::size_t at = 0; at < rows.size(); at += context_ + 1) {
    const std::size_t example = random_.below(examples_);
    const auto after = std::upper_bound(first_.begin(), first_.end(), example);
    const auto range = static_cast<std::size_t>(after - first_.begin()) - 1;
    const std::size_t begin = corpus_.train[range].begin + (example - first_[range]);
    std::copy_n(corpus_.bytes.begin() + static_cast<std::ptrdiff_t>(begin), context_ + 1,
                rows.subspan(at).begin());
  }
}

std::vector<std::size_t> held_out_positions(const Corpus& corpus, std::size_t context,
                                            std::size_t limit) {
  std::vector<std::size_t> all;
  for (const Range& range : corpus.held_out) {
    for (std::size_t at = range.begin + context; at < range.end; ++at) all.push_back(at);
  }
  if (all.size() <= limit) return all;
  std::vector<std::size_t> some(limit);
  for (std::size_t i = 0; i < limit; ++i) some[i] = all[i * all.size() / limit];
  return some;
}

}  // namespace text
