// SPDX-License-Identifier: Apache-2.0
#include "ckpt/llmc_layout.hpp"

#include "outboard/error.hpp"

namespace outboard::ckpt {
namespace {

constexpr std::int32_t kMagic = 20240326;
constexpr std::int32_t kVersionFp32 = 3;
constexpr std::int32_t kVersionBf16 = 5;

[[noreturn]] void refuse(const std::string& file, const std::string& why) {
  throw Error(ErrorCode::bad_checkpoint,
              "'" + file + "' " + why + "; it is damaged or no file of GPT-2 weights of llm.c");
}

/// Beyond these a model is none, and sizes could not be multiplied.
constexpr std::int32_t kMostContext = 1 << 24, kMostVocab = 1 << 24, kMostLayers = 4096,
                       kMostWidth = 65536;

struct Field {
  const char* name;
  std::size_t index;
  std::int32_t most;
};

std::uint64_t field(const LlmcHeader& header, const Field& field, const std::string& file) {
  const std::int32_t value = header[field.index];
  if (value < 1 || value > field.most) {
    refuse(file, "says that its " + std::string(field.name) + " is " + std::to_string(value) +
                     ", and 1 to " + std::to_string(field.most) + " are allowed");
  }
  return static_cast<std::uint64_t>(value);
}

/// One tensor of every block.
struct BlockTensor {
  const char* name;
  std::uint64_t out, in;  // widths; in 0: a vector
};
constexpr std::array<BlockTensor, 12> kBlock = {{{"ln_1.gain", 1, 0},
                                                 {"ln_1.bias", 1, 0},
                                                 {"attention.qkv.weight", 3, 1},
                                                 {"attention.qkv.bias", 3, 0},
                                                 {"attention.project.weight", 1, 1},
                                                 {"attention.project.bias", 1, 0},
                                                 {"ln_2.gain", 1, 0},
                                                 {"ln_2.bias", 1, 0},
                                                 {"feed_forward.up.weight", 4, 1},
                                                 {"feed_forward.up.bias", 4, 0},
                                                 {"feed_forward.down.weight", 1, 4},
                                                 {"feed_forward.down.bias", 1, 0}}};

}  // namespace

LlmcHeader make_llmc_header(const LlmcShape& shape) {
  const auto number = [](std::uint64_t value) { return static_cast<std::int32_t>(value); };
  LlmcHeader header{};
  header[0] = kMagic;
  header[1] = shape.dtype == DType::bf16 ? kVersionBf16 : kVersionFp32;
  header[2] = number(shape.context);
  header[3] = number(shape.vocab);
  header[4] = number(shape.layers);
  header[5] = number(shape.heads);
  header[6] = number(shape.width);
  header[7] = number(shape.padded_vocab);
  return header;
}

LlmcShape parse_llmc_header(const LlmcHeader& header, const std::string& file) {
  if (header[0] != kMagic) {
    refuse(file,
           "begins with " + std::to_string(header[0]) + " and not with " + std::to_string(kMagic));
  }
  if (header[1] != kVersionFp32 && header[1] != kVersionBf16) {
    throw Error(ErrorCode::unsupported,
                "'" + file + "' is of version " + std::to_string(header[1]) +
                    ", and versions 3 (FP32) and 5 (BF16) are read; write it again with a newer "
                    "llm.c");
  }
  LlmcShape shape{.context = field(header, {"max_seq_len", 2, kMostContext}, file),
                  .vocab = field(header, {"vocab_size", 3, kMostVocab}, file),
                  .layers = field(header, {"n_layer", 4, kMostLayers}, file),
                  .heads = field(header, {"n_head", 5, kMostWidth}, file),
                  .width = field(header, {"n_embd", 6, kMostWidth}, file),
                  .padded_vocab = field(header, {"padded_vocab_size", 7, kMostVocab}, file),
                  .dtype = header[1] == kVersionBf16 ? DType::bf16 : DType::f32};
  if (shape.width % shape.heads != 0) refuse(file, "has a width that is no multiple of its heads");
  if (shape.padded_vocab < shape.vocab) refuse(file, "has a vocabulary beyond its padded one");
  return shape;
}

std::vector<LlmcTensor> llmc_tensors(const LlmcShape& shape) {
  std::vector<LlmcTensor> tensors;
  std::uint64_t offset = kLlmcHeaderBytes;
  const auto add = [&](LlmcTensor tensor) {
    tensor.offset = offset;
    offset += (tensor.elems() + tensor.padding_rows * tensor.cols) * dtype_bytes(shape.dtype);
    tensors.push_back(std::move(tensor));
  };
  const std::uint64_t width = shape.width;
  add({.name = "wte",
       .rows = shape.vocab,
       .cols = width,
       .padding_rows = shape.padded_vocab - shape.vocab,
       .place = 0});
  add({.name = "wpe", .rows = shape.context, .cols = width, .place = 1});
  for (std::size_t i = 0; i < kBlock.size(); ++i) {
    for (std::uint64_t layer = 0; layer < shape.layers; ++layer) {
      add({.name = "block" + std::to_string(layer) + "." + kBlock[i].name,
           .rows = kBlock[i].out * width,
           .cols = kBlock[i].in == 0 ? 1 : kBlock[i].in * width,
           .transposed = kBlock[i].in != 0,
           .place = 2 + layer * kBlock.size() + i});
    }
  }
  const std::size_t last = 2 + shape.layers * kBlock.size();
  add({.name = "ln_f.gain", .rows = width, .cols = 1, .place = last});
  add({.name = "ln_f.bias", .rows = width, .cols = 1, .place = last + 1});
  return tensors;
}

std::uint64_t llmc_file_bytes(const LlmcShape& shape) {
  // Not by way of the tensors: a header of 1 KiB may claim 49,156 of them.
  std::uint64_t block = 0;
  for (const BlockTensor& tensor : kBlock) {
    block += tensor.out * shape.width * (tensor.in == 0 ? 1 : tensor.in * shape.width);
  }
  const std::uint64_t rows = shape.padded_vocab + shape.context + 2;  // wte, wpe, ln_f
  return kLlmcHeaderBytes + (rows * shape.width + shape.layers * block) * dtype_bytes(shape.dtype);
}

}  // namespace outboard::ckpt
