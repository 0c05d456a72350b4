// SPDX-License-Identifier: Apache-2.0
// A model's dimensions: counts that are published, counts that were asked for, files that are
// wrong.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cli/command_line.hpp"
#include "cli/model_shape.hpp"

namespace outboard::cli {
namespace {

TEST(ModelShape, PresetsHaveTheirPublishedCounts) {
  const std::vector<std::pair<const char*, std::uint64_t>> published = {
      {"gpt2", 124'439'808},           {"gpt2-medium", 354'823'168},
      {"gpt2-large", 774'030'080},     {"gpt2-xl", 1'557'611'200},
      {"qwen2.5-0.5b", 494'032'768},   {"qwen2.5-1.5b", 1'543'714'304},
      {"qwen2.5-7b", 7'615'616'512},   {"llama-2-7b", 6'738'415'616},
      {"llama-2-13b", 13'015'864'320}, {"llama-2-70b", 68'976'648'192},
      {"llama-3-8b", 8'030'261'248},   {"llama-3-70b", 70'553'706'496},
      {"mistral-7b", 7'241'732'096},
  };
  for (const auto& [name, count] : published) {
    EXPECT_EQ(count_parameters(preset_shape(name)), count) << name;
    EXPECT_NE(preset_shape_names().find(name), std::string::npos);
  }
}

TEST(ModelShape, StandInsHaveExactlyTheCountAskedFor) {
  for (const std::uint64_t count : {1ULL, 63ULL, 64ULL, 1000ULL, 50'000ULL, 1'000'000ULL,
                                    123'456'789ULL, 7'000'000'000ULL, 405'000'000'000ULL}) {
    const ModelShape shape = stand_in(count);
    EXPECT_EQ(count_parameters(shape), count);
    if (count < 100'000'000) continue;
    EXPECT_LT(shape.rest, count / 10) << count;
    EXPECT_GE(shape.layers, 1U);
  }
}

/// A token through a matrix takes 2 FLOPs for each of its elements, and nothing else does but
/// attention.
TEST(ModelShape, FlopsAreTwoForEachElementOfAMatrix) {
  for (const char* name : {"llama-2-7b", "gpt2", "qwen2.5-0.5b"}) {
    const ModelShape shape = preset_shape(name);
    double short_flops = tied_head_flops(shape);
    double long_flops = tied_head_flops(shape);
    double matrices = 0.0;
    for (const Tensor& tensor : tensors_of(shape, 0)) short_flops += tensor.forward_flops;
    for (const Tensor& tensor : tensors_of(shape, 1000)) long_flops += tensor.forward_flops;
    const auto w = static_cast<double>(shape.width);
    const auto layers = static_cast<double>(shape.layers);
    const auto q = static_cast<double>(shape.query_width());
    matrices = layers * w *
               (2 * q + 2 * static_cast<double>(shape.kv_width()) +
                (shape.gated ? 3 : 2) * static_cast<double>(shape.inner));
    matrices += w * static_cast<double>(shape.vocab);
    EXPECT_DOUBLE_EQ(short_flops, 2 * matrices) << name;
    EXPECT_DOUBLE_EQ(long_flops - short_flops, 4000.0 * layers * q) << name;
  }
}

TEST(ModelShape, ReadsConfigurationFiles) {
  const ModelShape gpt2 = shape_from_json(
      R"({"model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12, "n_positions": 1024,
          "vocab_size": 50257, "n_inner": null})",
      "config.json");
  EXPECT_EQ(count_parameters(gpt2), 124'439'808U);
  const ModelShape llama = shape_from_json(
      R"({"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32,
          "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336,
          "vocab_size": 128256, "tie_word_embeddings": false, "_name_or_path": "mine"})",
      "config.json");
  EXPECT_EQ(count_parameters(llama), 8'030'261'248U);
  EXPECT_EQ(llama.name, "mine");
  const ModelShape qwen = shape_from_json(
      R"({"model_type": "qwen2", "hidden_size": 896, "num_hidden_layers": 24,
          "num_attention_heads": 14, "num_key_value_heads": 2, "intermediate_size": 4864,
          "vocab_size": 151936, "tie_word_embeddings": true})",
      "config.json");
  EXPECT_EQ(count_parameters(qwen), 494'032'768U);
}

TEST(ModelShape, RefusesFilesByFieldAndValue) {
  const auto refusal = [](const std::string& text) {
    try {
      (void)shape_from_json(text, "some/config.json");
    } catch (const UsageError& refused) {
      return std::string(refused.what());
    }
    return std::string("accepted");
  };
  EXPECT_NE(refusal("[1]").find("some/config.json is not a JSON object"), std::string::npos);
  EXPECT_NE(refusal("{").find("is not a JSON object"), std::string::npos);
  EXPECT_NE(refusal("{}").find("has no \"num_hidden_layers\""), std::string::npos);
  EXPECT_NE(refusal(R"({"n_embd": -4, "n_layer": 2})").find("\"n_embd\": -4"), std::string::npos);
  EXPECT_NE(refusal(R"({"n_embd": 99999999, "n_layer": 2})").find("allowed are 1 to"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"num_local_experts": 8})").find("mixture of experts"), std::string::npos);
  EXPECT_NE(refusal(R"({"num_hidden_layers": "many"})").find("\"many\""), std::string::npos);
}

TEST(ModelShape, RefusesWordsThatAreNoNumberOrName) {
  EXPECT_EQ(parse_parameters("7b"), 7'000'000'000U);
  EXPECT_EQ(parse_parameters("1.5B"), 1'500'000'000U);
  EXPECT_EQ(parse_parameters("350m"), 350'000'000U);
  EXPECT_EQ(parse_parameters("1e8"), 100'000'000U);
  EXPECT_EQ(parse_parameters("124439808"), 124'439'808U);
  for (const char* bad : {"", "b", "7bb", "-1b", "0", "7 b", "nan", "1e30"}) {
    EXPECT_THROW((void)parse_parameters(bad), UsageError) << bad;
  }
  EXPECT_THROW((void)preset_shape("gpt5"), UsageError);
}

}  // namespace
}  // namespace outboard::cli
