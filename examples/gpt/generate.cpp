// SPDX-License-Identifier: Apache-2.0
#include "generate.hpp"

#include <algorithm>

#include "../common/random.hpp"
#include "../common/sample.hpp"

namespace gpt {

std::vector<Token> generate(Model& model, outboard::Engine& engine, Machine& machine,
                            outboard::NativeStream stream, const SampleRequest& request) {
  const std::size_t context = model.shape().context;
  example::Random random(request.seed);
  std::vector<Token> written = request.prompt;
  std::vector<Token> row(context + 1);
  std::vector<float> logits(model.shape().vocab);
  for (std::size_t i = 0; i < request.count; ++i) {
    const std::size_t seen = std::min(context, written.size());
    std::copy_n(written.end() - static_cast<std::ptrdiff_t>(seen), seen, row.begin());
    std::fill(row.begin() + static_cast<std::ptrdiff_t>(seen), row.end(), Token{0});
    model.set_tokens(row, stream);
    model.forward(engine, 1, stream);
    model.copy_logits(0, seen - 1, logits, stream);
    machine.synchronize(stream);
    written.push_back(static_cast<Token>(example::draw(logits, request.temperature, random)));
  }
  return written;
}

std::string show_tokens(std::span<const Token> tokens, TokenKind kind) {
  if (kind == TokenKind::bytes) {
    const std::vector<std::uint8_t> bytes(tokens.begin(), tokens.end());
    return example::show_text(bytes);
  }
  std::string text;
  for (const Token token : tokens) text += std::to_string(token) + " ";
  return text;
}

}  // namespace gpt
