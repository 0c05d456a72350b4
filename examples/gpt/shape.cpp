// SPDX-License-Identifier: Apache-2.0
#include "shape.hpp"

#include <algorithm>
#include <string>

#include "../common/halves.hpp"
#include "ops.hpp"
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

/// Blocks whose gradients have buffers.
std::size_t gradient_sets(const GptShape& shape, GradBuffers buffers) {
  return buffers == GradBuffers::full ? shape.layers : std::min<std::size_t>(shape.layers, 2);
}

/// Elements of each parameter, of the blocks only `blocks`, in the order of Model::parameters().
std::vector<std::size_t> parameter_sizes(const GptShape& shape, std::size_t blocks) {
  const std::size_t c = shape.width, square = c * c;
  std::vector<std::size_t> sizes{shape.vocab * c, shape.context * c};
  for (std::size_t i = 0; i < blocks; ++i) {
    sizes.insert(sizes.end(),
                 {c, c, 3 * square, 3 * c, square, c, c, c, 4 * square, 4 * c, 4 * square, c});
  }
  sizes.insert(sizes.end(), {c, c});
  return sizes;
}

/// One FP16 buffer for each of those.
std::size_t tensor_bytes(const GptShape& shape, std::size_t blocks) {
  std::size_t bytes = 0;
  for (const std::size_t elems : parameter_sizes(shape, blocks)) {
    bytes += device_rounded(elems * sizeof(Half));
  }
  return bytes;
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
  const std::size_t tiles = thread_scratch_bytes(*this);
  if (tiles <= kMostThreadScratch) return;
  throw outboard::Error(outboard::ErrorCode::invalid_config,
                        "the model's context of " + std::to_string(context) + " and heads " +
                            std::to_string(head_width()) + " wide take " + std::to_string(tiles) +
                            " bytes of FP32 tiles for each kernel thread, and at most " +
                            std::to_string(kMostThreadScratch) +
                            " are allowed; use more heads or less context");
}

std::size_t GptShape::block_elems() const {
  return 12 * width * width + 13 * width;
}

std::size_t GptShape::parameter_elems() const {
  return (vocab + context) * width + layers * block_elems() + 2 * width;
}

std::vector<std::size_t> GptShape::parameter_sizes() const {
  return gpt::parameter_sizes(*this, layers);
}

std::size_t GptShape::weight_bytes() const {
  return parameter_elems() * sizeof(Half);
}

std::size_t GptShape::gradient_bytes(GradBuffers buffers) const {
  return (parameter_elems() - (layers - gradient_sets(*this, buffers)) * block_elems()) *
         sizeof(Half);
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

std::size_t GptShape::device_bytes(GradBuffers buffers, bool checkpointing) const {
  const auto activation = [this](std::size_t widths) {
    return device_rounded(positions(batch) * widths * width * sizeof(Half));
  };
  const std::size_t inside = 4 * activation(1) + activation(3) + 2 * activation(4);
  const std::size_t activations = (layers + 1) * activation(1) +
                                  (checkpointing ? 1 : layers) * inside + 2 * activation(1) +
                                  activation(4);
  const std::size_t at_ends = device_rounded(batch * row_tokens() * sizeof(Token)) +
                              device_rounded(positions(batch) * sizeof(float)) +
                              device_rounded(sizeof(double)) +
                              device_rounded(vocab * sizeof(float));
  return tensor_bytes(*this, layers) + tensor_bytes(*this, gradient_sets(*this, buffers)) +
         activations + at_ends;
}

}  // namespace gpt
