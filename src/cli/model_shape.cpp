// SPDX-License-Identifier: Apache-2.0
#include "cli/model_shape.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "cli/command_line.hpp"

namespace outboard::cli {
namespace {

ModelShape gpt2(const char* name, std::uint64_t layers, std::uint64_t width, std::uint64_t heads) {
  ModelShape shape{.name = name, .layers = layers, .width = width, .heads = heads};
  shape.kv_heads = heads;
  shape.head_width = width / heads;
  shape.inner = 4 * width;
  shape.vocab = 50257;
  shape.positions = 1024;
  shape.tied = shape.layer_norm = shape.linear_bias = true;
  return shape;
}

struct LlamaSize {
  std::uint64_t layers, width, heads, kv_heads, inner, vocab;
};

ModelShape llama(const char* name, const LlamaSize& size) {
  ModelShape shape{.name = name, .layers = size.layers, .width = size.width, .heads = size.heads};
  shape.kv_heads = size.kv_heads;
  shape.head_width = size.width / size.heads;
  shape.inner = size.inner;
  shape.vocab = size.vocab;
  shape.gated = true;
  return shape;
}

ModelShape qwen2(const char* name, const LlamaSize& size, bool tied) {
  ModelShape shape = llama(name, size);
  shape.tied = tied;
  shape.qkv_bias = true;
  return shape;
}

const std::vector<ModelShape>& preset_table() {
  static const std::vector<ModelShape> table = {
      gpt2("gpt2", 12, 768, 12),
      gpt2("gpt2-medium", 24, 1024, 16),
      gpt2("gpt2-large", 36, 1280, 20),
      gpt2("gpt2-xl", 48, 1600, 25),
      qwen2("qwen2.5-0.5b", {24, 896, 14, 2, 4864, 151936}, true),
      qwen2("qwen2.5-1.5b", {28, 1536, 12, 2, 8960, 151936}, true),
      qwen2("qwen2.5-7b", {28, 3584, 28, 4, 18944, 152064}, false),
      llama("llama-2-7b", {32, 4096, 32, 32, 11008, 32000}),
      llama("llama-2-13b", {40, 5120, 40, 40, 13824, 32000}),
      llama("llama-2-70b", {80, 8192, 64, 8, 28672, 32000}),
      llama("llama-3-8b", {32, 4096, 32, 8, 14336, 128256}),
      llama("llama-3-70b", {80, 8192, 64, 8, 28672, 128256}),
      llama("mistral-7b", {32, 4096, 32, 8, 14336, 32000}),
  };
  return table;
}

/// Appends the tensors of a model, one after the other.
class Builder {
 public:
  explicit Builder(const ModelShape& shape, std::uint64_t context)
      : shape_(shape), context_(static_cast<double>(context)) {}

  std::vector<Tensor> build() {
    add(shape_.vocab * shape_.width, 0.0);
    if (shape_.positions > 0) add(shape_.positions * shape_.width, 0.0);
    for (layer_ = 0; layer_ < shape_.layers; ++layer_) add_layer();
    layer_ = Tensor::kNoLayer;
    add_norm();
    if (!shape_.tied) matrix(shape_.width, shape_.vocab, false);
    if (shape_.rest > 0) add(shape_.rest, 2.0 * static_cast<double>(shape_.rest));
    return std::move(tensors_);
  }

 private:
  void add(std::uint64_t elems, double flops) { tensors_.push_back({elems, layer_, flops}); }
  void add_norm() {
    add(shape_.width, 0.0);
    if (shape_.layer_norm) add(shape_.width, 0.0);
  }
  void matrix(std::uint64_t in, std::uint64_t out, bool bias) {
    add(in * out, 2.0 * static_cast<double>(in) * static_cast<double>(out));
    if (bias) add(out, 0.0);
  }
  void add_layer() {
    const bool bias = shape_.linear_bias;
    const bool qkv = bias || shape_.qkv_bias;
    add_norm();
    matrix(shape_.width, shape_.query_width(), qkv);
    matrix(shape_.width, shape_.kv_width(), qkv);
    matrix(shape_.width, shape_.kv_width(), qkv);
    matrix(shape_.query_width(), shape_.width, bias);
    // Scores and their products with the values: 2 FLOPs each for a multiplication and an addition.
    const auto query = static_cast<double>(shape_.query_width());
    tensors_[tensors_.size() - (bias ? 2 : 1)].forward_flops += 4.0 * context_ * query;
    add_norm();
    matrix(shape_.width, shape_.inner, bias);
    if (shape_.gated) matrix(shape_.width, shape_.inner, bias);
    matrix(shape_.inner, shape_.width, bias);
  }

  const ModelShape& shape_;
  double context_;
  std::uint64_t layer_ = Tensor::kNoLayer;
  std::vector<Tensor> tensors_;
};

}  // namespace

std::vector<Tensor> tensors_of(const ModelShape& shape, std::uint64_t context) {
  return Builder(shape, context).build();
}

double tied_head_flops(const ModelShape& shape) {
  if (!shape.tied) return 0.0;
  return 2.0 * static_cast<double>(shape.vocab) * static_cast<double>(shape.width);
}

std::uint64_t count_parameters(const ModelShape& shape) {
  std::uint64_t sum = 0;
  for (const Tensor& tensor : tensors_of(shape, 0)) sum += tensor.elems;
  return sum;
}

ModelShape preset_shape(std::string_view name) {
  for (const ModelShape& shape : preset_table()) {
    if (shape.name == name) return shape;
  }
  throw UsageError("no model is called \"" + std::string(name) + "\"; there are " +
                   preset_shape_names() + ", or give --params or --config");
}

std::string preset_shape_names() {
  std::string names;
  for (const ModelShape& shape : preset_table()) {
    names += (names.empty() ? "" : ", ") + shape.name;
  }
  return names;
}

// 12 layers' worth of width^2 for each 128 of width: the proportions of the models above.
ModelShape stand_in(std::uint64_t parameters) {
  const double ideal = std::cbrt(static_cast<double>(parameters) * 128.0 / 12.0);
  const auto units = static_cast<std::uint64_t>(std::llround(ideal / 64.0));
  ModelShape shape{.name = "", .width = std::clamp<std::uint64_t>(units, 1, 1U << 20) * 64};
  shape.heads = shape.kv_heads = std::max<std::uint64_t>(shape.width / 128, 1);
  shape.head_width = shape.width / shape.heads;
  shape.inner = 4 * shape.width;
  const double rows = static_cast<double>(parameters) / 4.0 / static_cast<double>(shape.width);
  shape.vocab = static_cast<std::uint64_t>(std::min(32000.0, rows));
  shape.tied = true;
  const std::uint64_t none = count_parameters(shape);
  shape.layers = 1;
  const std::uint64_t layer = count_parameters(shape) - none;
  shape.layers = parameters > none ? (parameters - none) / std::max<std::uint64_t>(layer, 1) : 0;
  const std::uint64_t have = count_parameters(shape);
  if (have > parameters) {  // fewer than one norm takes
    shape = {};
    shape.rest = parameters;
    return shape;
  }
  shape.rest = parameters - have;
  return shape;
}

std::uint64_t parse_parameters(std::string_view text) {
  constexpr std::array<std::pair<char, double>, 4> kSuffixes = {
      {{'k', 1e3}, {'m', 1e6}, {'b', 1e9}, {'t', 1e12}}};
  double value = 0.0;
  const char* const last = text.data() + text.size();
  auto [end, error] = std::from_chars(text.data(), last, value);
  for (const auto& [letter, factor] : kSuffixes) {
    if (error != std::errc{} || end == last || (*end | 0x20) != letter) continue;
    value *= factor;
    ++end;
    break;
  }
  value = std::round(value);
  if (error != std::errc{} || end != last || !(value >= 1.0) || value > 1e14) {
    throw UsageError("\"" + std::string(text) +
                     "\" is no number of parameters; give one such as 7b, 350m or 124439808");
  }
  return static_cast<std::uint64_t>(value);
}

}  // namespace outboard::cli
