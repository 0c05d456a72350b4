// SPDX-License-Identifier: Apache-2.0
// Weights of a small GPT-2 to llm.c's file and back to the bit.
#include <cstring>

#include "outboard/half.hpp"
#include "weights_fixture.hpp"

namespace outboard {
namespace {

using namespace testing;

constexpr std::size_t kLayers = 3, kWidth = 6, kContext = 5, kVocab = 10, kPadded = 128;
constexpr std::size_t kHeader = 1024;

/// As examples/gpt has them.
Weights small_gpt() {
  std::vector<std::pair<std::string, std::size_t>> sizes = {{"wte", kVocab * kWidth},
                                                            {"wpe", kContext * kWidth}};
  for (std::size_t i = 0; i < kLayers; ++i) {
    const std::string block = "block" + std::to_string(i) + ".";
    constexpr std::size_t kSquare = kWidth * kWidth;
    for (const auto& [name, elems] :
         std::vector<std::pair<std::string, std::size_t>>{{"ln_1.gain", kWidth},
                                                          {"ln_1.bias", kWidth},
                                                          {"attention.qkv.weight", 3 * kSquare},
                                                          {"attention.qkv.bias", 3 * kWidth},
                                                          {"attention.project.weight", kSquare},
                                                          {"attention.project.bias", kWidth},
                                                          {"ln_2.gain", kWidth},
                                                          {"ln_2.bias", kWidth},
                                                          {"feed_forward.up.weight", 4 * kSquare},
                                                          {"feed_forward.up.bias", 4 * kWidth},
                                                          {"feed_forward.down.weight", 4 * kSquare},
                                                          {"feed_forward.down.bias", kWidth}}) {
      sizes.emplace_back(block + name, elems);
    }
  }
  sizes.emplace_back("ln_f.gain", kWidth);
  sizes.emplace_back("ln_f.bias", kWidth);
  Weights weights;
  for (const auto& [name, elems] : sizes) {
    auto& values = weights.emplace_back(name, std::vector<float>()).second;
    for (std::size_t e = 0; e < elems; ++e) values.push_back(any_float(weights.size() * 4096 + e));
  }
  return weights;
}

const std::vector<float>& named(const Weights& weights, const std::string& name) {
  return std::ranges::find(weights, name, &Weights::value_type::first)->second;
}

class Llmc : public WeightsTest {
 protected:
  ExportReport export_gpt(const std::string& target, ExportOptions options = {}) {
    options.file = WeightsFile::llmc;
    return export_weights(path("run"), path(target), options);
  }
  void import(const std::string& source) {
    import_weights(path(source), path("imported"), {.file = WeightsFile::llmc});
  }
};

std::int32_t int_at(const std::string& bytes, std::size_t offset) {
  std::int32_t value = 0;
  std::memcpy(&value, bytes.data() + offset, sizeof(value));
  return value;
}

float float_at(const std::string& bytes, std::size_t index) {
  return std::bit_cast<float>(int_at(bytes, kHeader + index * sizeof(float)));
}

TEST_F(Llmc, HasItsHeaderAndEveryTensorWhereItsReaderLooks) {
  const Weights weights = small_gpt();
  save(weights, {{"heads", "2"}});
  const ExportReport report = export_gpt("gpt2.bin");
  const std::string bytes = content(path("gpt2.bin"));
  EXPECT_EQ(report.bytes, bytes.size());
  EXPECT_EQ(report.tensors, weights.size());
  const std::int32_t header[] = {20240326, 3, kContext, kVocab, kLayers, 2, kWidth, kPadded};
  for (std::size_t i = 0; i < 256; ++i) {
    EXPECT_EQ(int_at(bytes, i * 4), i < 8 ? header[i] : 0) << i;
  }
  std::size_t at = 0;
  const auto expect_next = [&](float value) {
    EXPECT_EQ(std::bit_cast<std::uint32_t>(float_at(bytes, at)),
              std::bit_cast<std::uint32_t>(value))
        << at;
    at += 1;
  };
  const auto expect_vector = [&](const std::string& name) {
    for (const float value : named(weights, name)) expect_next(value);
  };
  // The model multiplies by in x out, the file has out x in.
  const auto expect_matrix = [&](const std::string& name, std::size_t in, std::size_t out) {
    for (std::size_t o = 0; o < out; ++o) {
      for (std::size_t i = 0; i < in; ++i) expect_next(named(weights, name)[i * out + o]);
    }
  };
  const auto each_layer = [&](const auto& expect, const std::string& name, auto... sizes) {
    for (std::size_t i = 0; i < kLayers; ++i) {
      expect("block" + std::to_string(i) + "." + name, sizes...);
    }
  };
  expect_vector("wte");
  for (std::size_t i = 0; i < (kPadded - kVocab) * kWidth; ++i) expect_next(0.0F);
  expect_vector("wpe");
  each_layer(expect_vector, "ln_1.gain");
  each_layer(expect_vector, "ln_1.bias");
  each_layer(expect_matrix, "attention.qkv.weight", kWidth, 3 * kWidth);
  each_layer(expect_vector, "attention.qkv.bias");
  each_layer(expect_matrix, "attention.project.weight", kWidth, kWidth);
  each_layer(expect_vector, "attention.project.bias");
  each_layer(expect_vector, "ln_2.gain");
  each_layer(expect_vector, "ln_2.bias");
  each_layer(expect_matrix, "feed_forward.up.weight", kWidth, 4 * kWidth);
  each_layer(expect_vector, "feed_forward.up.bias");
  each_layer(expect_matrix, "feed_forward.down.weight", 4 * kWidth, kWidth);
  each_layer(expect_vector, "feed_forward.down.bias");
  expect_vector("ln_f.gain");
  expect_vector("ln_f.bias");
  EXPECT_EQ(kHeader + at * sizeof(float), bytes.size());
}

TEST_F(Llmc, ComesBackToTheBit) {
  const Weights weights = small_gpt();
  save(weights);
  export_gpt("gpt2.bin", {.heads = 3});
  import("gpt2.bin");
  EXPECT_TRUE(same_bits(masters(path("imported")), weights));
  EXPECT_EQ(inspect_checkpoint(path("imported")).entries.at("heads"), "3");
  export_weights(path("imported"), path("again.bin"), {.file = WeightsFile::llmc});
  EXPECT_EQ(content(path("again.bin")), content(path("gpt2.bin")));
}

TEST_F(Llmc, ComesBackRoundedInSixteenBits) {
  Weights weights = small_gpt();
  save(weights);
  export_gpt("gpt2.bin", {.dtype = DType::bf16, .heads = 3});
  EXPECT_EQ(int_at(content(path("gpt2.bin")), 4), 5);
  import("gpt2.bin");
  for (auto& tensor : weights) {
    for (float& value : tensor.second) value = bf16_to_float(bf16_from_float(value));
  }
  EXPECT_TRUE(same_bits(masters(path("imported")), weights));
  EXPECT_EQ(inspect_checkpoint(path("imported")).parameters[0].dtype, DType::bf16);
  export_weights(path("imported"), path("again.bin"),
                 {.file = WeightsFile::llmc, .dtype = DType::bf16});
  EXPECT_EQ(content(path("again.bin")), content(path("gpt2.bin")));
}

/// Bands of columns that do not fit one buffer.
TEST_F(Llmc, TakesMatricesInBands) {
  constexpr std::size_t kWide = 1300;
  Weights weights = small_gpt();
  for (auto& [name, values] : weights) {
    const bool matrix = name.ends_with(".weight");
    const std::size_t factor = kWide / 2 * 2 / kWidth;
    values.resize(values.size() * factor * (matrix ? factor : 1));
    for (std::size_t e = 0; e < values.size(); ++e) values[e] = static_cast<float>(e % 65521);
  }
  weights.erase(weights.begin() + 2 + 12, weights.begin() + 2 + 36);  // one layer is enough
  save(weights);
  export_gpt("gpt2.bin", {.heads = 2});
  import("gpt2.bin");
  EXPECT_TRUE(same_bits(masters(path("imported")), weights));
}

TEST_F(Llmc, IsRefusedForAnotherModel) {
  const Weights good = small_gpt();
  const auto refuse = [&](const Weights& weights, ErrorCode code, std::string_view words,
                          const ExportOptions& options = {.heads = 2}) {
    save(weights);
    expect_error(code, {words}, [&] { export_gpt("gpt2.bin", options); });
    EXPECT_FALSE(std::filesystem::exists(path("gpt2.bin")));
    EXPECT_FALSE(std::filesystem::exists(path("gpt2.bin.exporting")));
  };
  refuse(good, ErrorCode::invalid_argument, "does not say how many heads", {});
  refuse(good, ErrorCode::invalid_argument, "f32 or bf16", {.dtype = DType::f16, .heads = 2});
  refuse(good, ErrorCode::invalid_argument, "4 heads of attention cannot share a width of",
         {.heads = 4});
  refuse(good, ErrorCode::invalid_argument, "a tensor's name is for files of safetensors",
         {.names = {{"wte", "x"}}, .heads = 2});
  Weights other = good;
  other.pop_back();
  refuse(other, ErrorCode::unsupported, "no parameter 'ln_f.bias'");
  other = good;
  other.emplace_back("more", std::vector<float>(3));
  refuse(other, ErrorCode::unsupported, "41 parameters and a GPT-2 of its depth 40");
  other = good;
  other[4].second.pop_back();
  refuse(other, ErrorCode::unsupported, "'block0.attention.qkv.weight' has 107 elements and a");
  other = good;
  other[0].second.pop_back();
  refuse(other, ErrorCode::unsupported, "'wte' has 59 elements");
}

TEST_F(Llmc, IsNotBelieved) {
  save(small_gpt());
  export_gpt("gpt2.bin", {.heads = 2});
  const std::string good = content(path("gpt2.bin"));
  const auto refuse = [&](const std::string& bytes, std::string_view words,
                          ErrorCode code = ErrorCode::bad_checkpoint) {
    write(path("bad.bin"), bytes);
    expect_error(code, {path("bad.bin"), words}, [&] { import("bad.bin"); });
  };
  const auto with = [&](std::size_t index, std::int32_t value) {
    std::string bytes = good;
    std::memcpy(bytes.data() + index * 4, &value, sizeof(value));
    return bytes;
  };
  refuse(with(0, 1), "begins with 1 and not with 20240326");
  refuse(with(1, 1), "version 1", ErrorCode::unsupported);
  refuse(with(2, 0), "max_seq_len is 0");
  refuse(with(3, -1), "vocab_size is -1");
  refuse(with(3, 129), "beyond its padded one");
  refuse(with(4, 5000), "n_layer is 5000");
  refuse(with(4, 4), "bytes long, and a file of its header has");
  refuse(with(5, 4), "no multiple of its heads");
  refuse(with(6, INT32_MAX), "n_embd is 2147483647");
  refuse(with(7, 256), "a file of its header has");
  refuse(good.substr(0, good.size() - 1), "it is cut off");
  refuse(good + "x", "it is cut off or damaged");
  refuse(good.substr(0, 1000), "ends at byte 1000");
  refuse(with(kHeader / 4 + 3, 0x7FC00000), "element 3 of tensor 'wte' is NaN");
}

}  // namespace
}  // namespace outboard
