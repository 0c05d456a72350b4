// SPDX-License-Identifier: Apache-2.0
#include "tokens.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace gpt {
namespace {

namespace fs = std::filesystem;
using example::DataError;

void add_token_file(Tokens& tokens, const fs::path& path, std::size_t vocab) {
  const auto bytes = example::read_file(path);
  if (bytes.empty()) throw DataError(path.string() + " is empty; pass a file with tokens");
  if (bytes.size() % sizeof(Token) != 0) {
    throw DataError(path.string() + " has " + std::to_string(bytes.size()) +
                    " bytes, an odd number; 16-bit tokens take two each: is it text? then leave "
                    "out --tokens uint16");
  }
  const std::size_t first = tokens.values.size();
  if (first * sizeof(Token) + bytes.size() > example::kMaxDataBytes) {
    throw DataError("the data has more than " + std::to_string(example::kMaxDataBytes) +
                    " bytes; pass fewer files");
  }
  for (std::size_t i = 0; i < bytes.size(); i += 2) {
    const auto token = static_cast<Token>(bytes[i] | bytes[i + 1] << 8);
    if (token >= vocab) {
      throw DataError(path.string() + " has token " + std::to_string(token) + " at position " +
                      std::to_string(i / 2) + ", and the vocabulary has " + std::to_string(vocab) +
                      "; raise --vocab, or check what the file holds");
    }
    tokens.values.push_back(token);
  }
  ++tokens.files;
}

void add_token_folder(Tokens& tokens, const fs::path& folder, std::size_t vocab) {
  for (const auto& path : example::files_below(folder)) {
    if (path.extension() == ".bin") {
      add_token_file(tokens, path, vocab);
    } else {
      ++tokens.skipped_files;
    }
  }
}

void load_token_files(Tokens& tokens, const TokenRequest& request) {
  for (const auto& path : request.paths) {
    example::is_folder(path, "files of 16-bit tokens or folders")
        ? add_token_folder(tokens, path, request.vocab)
        : add_token_file(tokens, path, request.vocab);
  }
  if (tokens.values.empty()) {
    throw DataError("no tokens found: 0 files named *.bin, " +
                    std::to_string(tokens.skipped_files) + " others passed over");
  }
}

}  // namespace

const char* unit_of(TokenKind kind) {
  return kind == TokenKind::bytes ? "byte" : "token";
}

example::Split split_tokens(std::size_t count, TokenKind kind, std::size_t context) {
  constexpr std::size_t kBlock = example::Split::kBlock;
  const std::size_t block = std::max(kBlock, context + 1);
  if (count < block * example::Split::kHoldOutEvery && block > kBlock) {
    throw DataError("the data has " + std::to_string(count) + " " + unit_of(kind) +
                    "s; a context of " + std::to_string(context) + " needs " +
                    std::to_string(block * example::Split::kHoldOutEvery) +
                    ", of which a tenth is held out: pass more data or lower --context");
  }
  return example::split_blocks(count, std::string(unit_of(kind)) + "s", block);
}

Tokens load_tokens(const TokenRequest& request) {
  Tokens tokens;
  tokens.kind = request.kind;
  if (request.kind == TokenKind::uint16) {
    load_token_files(tokens, request);
  } else {
    const example::Text text = example::load_text(request.paths);
    tokens.values.assign(text.bytes.begin(), text.bytes.end());
    tokens.files = text.files;
    tokens.skipped_files = text.skipped_files;
  }
  tokens.split = split_tokens(tokens.values.size(), request.kind, request.context);
  return tokens;
}

RowSampler::RowSampler(const Tokens& tokens, std::size_t context, std::uint64_t seed)
    : tokens_(tokens), row_(context + 1), runs_(tokens.split.train, row_, seed) {}

void RowSampler::fill(std::span<Token> rows) {
  for (std::size_t at = 0; at + row_ <= rows.size(); at += row_) {
    const auto from = tokens_.values.begin() + static_cast<std::ptrdiff_t>(runs_.draw());
    std::copy_n(from, row_, rows.subspan(at).begin());
  }
}

std::vector<Token> held_out_rows(const Tokens& tokens, std::size_t context, std::size_t limit) {
  std::vector<std::size_t> all;
  for (const example::Range& range : tokens.split.held_out) {
    for (std::size_t at = range.begin; at + context < range.end; at += context) all.push_back(at);
  }
  const std::size_t count = std::clamp<std::size_t>(limit / context, 1, all.size());
  std::vector<Token> rows;
  for (std::size_t i = 0; i < count; ++i) {
    const auto from =
        tokens.values.begin() + static_cast<std::ptrdiff_t>(all[i * all.size() / count]);
    rows.insert(rows.end(), from, from + static_cast<std::ptrdiff_t>(context + 1));
  }
  return rows;
}

example::NGram count_training(const Tokens& tokens, std::size_t order, std::size_t vocab) {
  example::NGram ngram(order, vocab);
  std::size_t left = kMostCounted;
  for (const example::Range& range : tokens.split.train) {
    const std::size_t size = std::min(left, range.size());
    ngram.count(std::span(tokens.values).subspan(range.begin, size));
    left -= size;
  }
  return ngram;
}

double ngram_loss(const example::NGram& ngram, std::span<const Token> rows, std::size_t context) {
  double sum = 0.0;
  std::size_t predicted = 0;
  for (std::size_t at = 0; at < rows.size(); at += context + 1) {
    const auto row = rows.subspan(at, context + 1);
    for (std::size_t i = 1; i < row.size(); ++i, ++predicted) {
      sum -= std::log(ngram.probability(row.first(i), row[i]));
    }
  }
  return sum / static_cast<double>(predicted);
}

}  // namespace gpt
