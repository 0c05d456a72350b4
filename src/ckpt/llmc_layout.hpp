// SPDX-License-Identifier: Apache-2.0
/// The `.bin` file of GPT-2 weights that llm.c (github.com/karpathy/llm.c) reads and writes: a
/// header of 256 little-endian 32-bit integers, then tensors in a fixed order without gaps.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "outboard/types.hpp"

namespace outboard::ckpt {

inline constexpr std::size_t kLlmcHeaderInts = 256;
inline constexpr std::size_t kLlmcHeaderBytes = kLlmcHeaderInts * 4;
/// Rows of the embedding in a file are a multiple of this; those beyond the vocabulary are zero.
inline constexpr std::uint64_t kLlmcVocabStep = 128;

struct LlmcShape {
  std::uint64_t context = 0, vocab = 0, layers = 0, heads = 0, width = 0, padded_vocab = 0;
  DType dtype = DType::f32;  ///< f32 or bf16
};

using LlmcHeader = std::array<std::int32_t, kLlmcHeaderInts>;
[[nodiscard]] LlmcHeader make_llmc_header(const LlmcShape& shape);
/// @throws Error{bad_checkpoint} naming `file` and the number; Error{unsupported} for another
/// version.
[[nodiscard]] LlmcShape parse_llmc_header(const LlmcHeader& header, const std::string& file);

/// A tensor as the file has it, and the parameter of examples/gpt that it is.
struct LlmcTensor {
  std::string name;
  std::uint64_t rows = 0, cols = 0;
  /// The parameter is the matrix column by column: the file has out x in, the model in x out.
  bool transposed = false;
  std::uint64_t padding_rows = 0;  ///< behind `rows`, zero, of the file only
  std::uint64_t offset = 0;        ///< in bytes from the start of the file
  std::size_t place = 0;           ///< in the order of the model's registration

  [[nodiscard]] std::uint64_t elems() const { return rows * cols; }
};

/// In the order of the file.
[[nodiscard]] std::vector<LlmcTensor> llmc_tensors(const LlmcShape& shape);
[[nodiscard]] std::uint64_t llmc_file_bytes(const LlmcShape& shape);

}  // namespace outboard::ckpt
