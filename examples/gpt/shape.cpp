// SPDX-License-Identifier: Apache-2.0
#include "shape.hpp"

#include <string>

#include "../common/halves.hpp"
#include "outboard/error.hpp"

namespace gpt {
namespace {

using example::Half;

struct Limit {
  const char* field;
  std::size_t value, least, most;
};

void check(const Limit& limit) {
  if (limit.value >= limit.least && limit.value <= limit.most) return;
  throw outboard::Error(outboard::ErrorCode::invalid_config,
                        "the model's " + std::string(limit.field) + " is " +
                            std::to_string(limit.value) + "; allowed are " +
                            std::to_string(limit.least) + " to " + std::to_string(limit.most));
}

}  // namespace

void GptShape::validate() const {
  check({"number of layers", layers, 1, 1024});
  check({"width", width, 1, 8192});
  check({"number of heads", heads, 1, width});
  check({"context", context, 1, 4096});
  check({"vocabulary", vocab, 2, 65536});
  check({"batch", batch, 1, (std::size_t{1} << 20) / context});
  if (width % heads != 0) {
    throw outboard::Error(outboard::ErrorCode::invalid_config,
                          "the model's width " + std::to_string(width) +
                              " is no multiple of its heads, " + std::to_string(heads));
  }
  // A head's keys, values and their gradients are one thread's FP32 tiles.
  check({"context times width of a head", context * head_width(), 1, std::size_t{1} << 18});
}

std::size_t GptShape::block_elems() const {
  return 12 * width * width + 13 * width;
}

std::size_t GptShape::parameter_elems() const {
  return (vocab + context) * width + layers * block_elems() + 2 * width;
}

std::size_t GptShape::weight_bytes() const {
  return parameter_elems() * sizeof(Half);
}

std::size_t GptShape::gradient_bytes(GradBuffers buffers) const {
  const std::size_t sets = buffers == GradBuffers::full ? layers : layers < 2 ? layers : 2;
  return (parameter_elems() - (layers - sets) * block_elems()) * sizeof(Half);
}

std::size_t GptShape::activation_bytes(bool checkpointing) const {
  // Of each position: the residual stream before every block and after the last, what is inside a
  // block (two LayerNorms, q k v, attention, the stream between, and twice four widths), and the
  // gradients at work (stream, one width, four widths).
  const std::size_t widths = (layers + 1) + 15 * (checkpointing ? 1 : layers) + 6;
  const std::size_t at_end = positions(batch) * sizeof(float) + sizeof(double);
  return positions(batch) * widths * width * sizeof(Half) + at_end +
         batch * row_tokens() * sizeof(Token) + vocab * sizeof(float);
}

}  // namespace gpt
