// SPDX-License-Identifier: Apache-2.0
/// Letting the model write.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "model.hpp"
#include "outboard/outboard.hpp"
#include "tokens.hpp"

namespace gpt {

struct SampleRequest {
  std::vector<Token> prompt;  ///< at least one token
  std::size_t count = 0;      ///< tokens to write after it
  double temperature = 1.0;
  std::uint64_t seed = 0;
};

/// The prompt and what the model writes after it, each token drawn given the last `context` ones.
/// Blocks.
[[nodiscard]] std::vector<Token> generate(Model& model, outboard::Engine& engine, Machine& machine,
                                          outboard::NativeStream stream,
                                          const SampleRequest& request);

/// Bytes as printable text, tokens as numbers.
[[nodiscard]] std::string show_tokens(std::span<const Token> tokens, TokenKind kind);

}  // namespace gpt
