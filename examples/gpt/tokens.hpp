// SPDX-License-Identifier: Apache-2.0
/// The data as tokens, split into a training and a held-out part.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "../common/ngram.hpp"
#include "../common/split.hpp"
#include "../common/text_files.hpp"
#include "shape.hpp"

namespace gpt {

enum class TokenKind : std::uint8_t {
  bytes,   ///< UTF-8 text, each byte a token
  uint16,  ///< little-endian 16-bit token numbers and nothing else, as many tokenizers write them
};
/// "byte" or "token".
[[nodiscard]] const char* unit_of(TokenKind kind);

struct Tokens {
  TokenKind kind = TokenKind::bytes;
  std::vector<Token> values;
  example::Split split;
  std::size_t files = 0;
  std::size_t skipped_files = 0;  ///< found in folders, but not of this kind
};

struct TokenRequest {
  std::vector<std::filesystem::path> paths;  ///< files and folders
  TokenKind kind = TokenKind::bytes;
  std::size_t vocab = 256;
  std::size_t context = 128;
};

/// Reads and checks all of it. Folders are searched for UTF-8 text, or for files named *.bin.
/// @throws example::DataError naming the file and the number that is wrong: missing, empty, not
/// UTF-8, an odd number of bytes, a token outside the vocabulary, too short for the context.
[[nodiscard]] Tokens load_tokens(const TokenRequest& request);
/// Splits tokens that are in memory already.
[[nodiscard]] example::Split split_tokens(std::size_t count, TokenKind kind, std::size_t context);

/// Draws rows of context + 1 tokens from the training part.
class RowSampler {
 public:
  RowSampler(const Tokens& tokens, std::size_t context, std::uint64_t seed);
  /// Fills as many rows as fit.
  void fill(std::span<Token> rows);

 private:
  const Tokens& tokens_;
  std::size_t row_;
  example::RunSampler runs_;
};

/// Held-out rows of context + 1 tokens, end to end, evenly spread, with about `limit` tokens to
/// predict and at least one row.
[[nodiscard]] std::vector<Token> held_out_rows(const Tokens& tokens, std::size_t context,
                                               std::size_t limit);

/// Counts the training part, of more than kMostCounted tokens the first ones.
inline constexpr std::size_t kMostCounted = std::size_t{1} << 25;
[[nodiscard]] example::NGram count_training(const Tokens& tokens, std::size_t order,
                                            std::size_t vocab);
/// Mean -ln P of every token of the rows but their first, in nats. As the model, the n-gram sees
/// what is earlier in the same row.
[[nodiscard]] double ngram_loss(const example::NGram& ngram, std::span<const Token> rows,
                                std::size_t context);

}  // namespace gpt
