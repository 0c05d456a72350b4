// SPDX-License-Identifier: Apache-2.0
// A model's dimensions from a config.json with the names that Hugging Face models use.
#include <nlohmann/json.hpp>

#include "cli/command_line.hpp"
#include "cli/model_shape.hpp"

namespace outboard::cli {
namespace {

using nlohmann::json;

/// More than any model has; keeps products of three within 64 bits.
constexpr std::uint64_t kLargest = 1'000'000;

class Fields {
 public:
  Fields(const json& object, std::string source) : object_(object), source_(std::move(source)) {}

  [[nodiscard]] bool has(const char* name) const {
    const auto found = object_.find(name);
    return found != object_.end() && !found->is_null();
  }
  [[nodiscard]] std::uint64_t number(const char* name) const {
    if (!has(name)) refuse("has no \"" + std::string(name) + "\"");
    const json& value = object_.at(name);
    if (!value.is_number_unsigned() || value == 0 || value > kLargest) {
      refuse("has \"" + std::string(name) + "\": " + value.dump() + "; allowed are 1 to " +
             std::to_string(kLargest));
    }
    return value.get<std::uint64_t>();
  }
  [[nodiscard]] std::uint64_t number(const char* name, std::uint64_t otherwise) const {
    return has(name) ? number(name) : otherwise;
  }
  [[nodiscard]] bool flag(const char* name, bool otherwise) const {
    if (!has(name)) return otherwise;
    if (!object_.at(name).is_boolean()) {
      refuse("has \"" + std::string(name) + "\": " + object_.at(name).dump() +
             "; allowed are true and false");
    }
    return object_.at(name).get<bool>();
  }
  [[nodiscard]] std::string word(const char* name) const {
    return has(name) && object_.at(name).is_string() ? object_.at(name).get<std::string>() : "";
  }
  [[noreturn]] void refuse(const std::string& what) const {
    throw UsageError(source_ + " " + what + "; or give --params or --model");
  }

 private:
  const json& object_;
  std::string source_;
};

ModelShape gpt2_shape(const Fields& fields) {
  ModelShape shape;
  shape.layers = fields.number("n_layer");
  shape.width = fields.number("n_embd");
  shape.heads = shape.kv_heads = fields.number("n_head");
  shape.inner = fields.number("n_inner", 4 * shape.width);
  shape.vocab = fields.number("vocab_size");
  shape.positions = fields.number("n_positions");
  shape.head_width = shape.width / shape.heads;
  shape.tied = fields.flag("tie_word_embeddings", true);
  shape.layer_norm = shape.linear_bias = true;
  return shape;
}

ModelShape llama_shape(const Fields& fields) {
  ModelShape shape;
  const std::string type = fields.word("model_type");
  shape.layers = fields.number("num_hidden_layers");
  shape.width = fields.number("hidden_size");
  shape.heads = fields.number("num_attention_heads");
  shape.kv_heads = fields.number("num_key_value_heads", shape.heads);
  shape.head_width = fields.number("head_dim", shape.width / shape.heads);
  shape.inner = fields.number("intermediate_size");
  shape.vocab = fields.number("vocab_size");
  shape.gated = true;
  // Gemma's own default is a tied table; a file with defaults leaves the field out.
  shape.tied = fields.flag("tie_word_embeddings", type.starts_with("gemma"));
  shape.qkv_bias = fields.flag("attention_bias", type == "qwen2");
  return shape;
}

void require_dense(const Fields& fields) {
  for (const char* name : {"num_local_experts", "num_experts", "n_routed_experts"}) {
    if (!fields.has(name)) continue;
    fields.refuse("has \"" + std::string(name) +
                  "\": a mixture of experts cannot be planned from its dimensions");
  }
}

}  // namespace

ModelShape shape_from_json(const std::string& text, const std::string& source) {
  const json object = json::parse(text, nullptr, false);
  if (!object.is_object()) throw UsageError(source + " is not a JSON object");
  const Fields fields(object, source);
  require_dense(fields);
  ModelShape shape = fields.has("n_embd") ? gpt2_shape(fields) : llama_shape(fields);
  shape.name = fields.word("_name_or_path");
  if (shape.name.empty()) shape.name = source;
  return shape;
}

}  // namespace outboard::cli
