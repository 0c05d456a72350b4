// SPDX-License-Identifier: Apache-2.0
/// What a decoder-only transformer consists of, from its dimensions alone.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace outboard::cli {

struct ModelShape {
  std::string name;
  std::uint64_t layers = 0;
  std::uint64_t width = 0;
  std::uint64_t heads = 0;
  std::uint64_t kv_heads = 0;
  std::uint64_t head_width = 0;
  std::uint64_t inner = 0;  ///< width of the feed-forward layer
  std::uint64_t vocab = 0;
  std::uint64_t positions = 0;  ///< learned ones; 0: none
  bool gated = false;           ///< three matrices in the feed-forward layer, not two
  bool tied = false;            ///< one table for embedding and output
  bool layer_norm = false;      ///< normalization has a bias beside the gain
  bool linear_bias = false;     ///< every matrix has a bias
  bool qkv_bias = false;        ///< those of queries, keys and values have one
  std::uint64_t rest = 0;       ///< parameters beside all that, so that the count is what was asked

  [[nodiscard]] std::uint64_t query_width() const { return heads * head_width; }
  [[nodiscard]] std::uint64_t kv_width() const { return kv_heads * head_width; }
};

/// One parameter tensor.
struct Tensor {
  static constexpr std::uint64_t kNoLayer = UINT64_MAX;
  std::uint64_t elems = 0;
  std::uint64_t layer = kNoLayer;
  double forward_flops = 0.0;  ///< for one token; attention's own are with its output matrix
};

/// In the order in which forward uses them. `context`: tokens that each one attends to.
[[nodiscard]] std::vector<Tensor> tensors_of(const ModelShape& shape, std::uint64_t context);
/// FLOPs for one token of the output matrix of a tied model, whose table is the first tensor.
[[nodiscard]] double tied_head_flops(const ModelShape& shape);
[[nodiscard]] std::uint64_t count_parameters(const ModelShape& shape);

/// A known model, such as "llama-2-7b". @throws UsageError listing what there is.
[[nodiscard]] ModelShape preset_shape(std::string_view name);
[[nodiscard]] std::string preset_shape_names();
/// A transformer of usual proportions with exactly this many parameters.
[[nodiscard]] ModelShape stand_in(std::uint64_t parameters);
/// From the text of a config.json with the names that Hugging Face models use. `source` is for
/// messages. @throws UsageError naming a field that is missing or not understood.
[[nodiscard]] ModelShape shape_from_json(const std::string& text, const std::string& source);
/// "7b", "350m", "1e8" or "124439808". @throws UsageError quoting what is none.
[[nodiscard]] std::uint64_t parse_parameters(std::string_view text);

}  // namespace outboard::cli
